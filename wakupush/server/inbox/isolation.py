"""Handling messages all at once, and each alone if one of them causes an error."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from psycopg import Connection
from tenacity import retry, retry_if_exception, stop_after_attempt, stop_after_delay, wait_random_exponential

from wakupush.model.entries import Entry, Task
from wakupush.model.events import EventKind, message_event
from wakupush.model.failures import Failure
from wakupush.model.queues import REGISTRATION, Queue
from wakupush.model.registrations import Installation
from wakupush.postgres import events, ledger
from wakupush.redis.sending import send_entries
from wakupush.runtime import metrics
from wakupush.server.counting import count_events
from wakupush.server.delivery.worker import Worker
from wakupush.server.errors import is_costly, is_cut, is_outage
from wakupush.server.inbox import steps
from wakupush.server.inbox.content import OpenedRegistration
from wakupush.server.inbox.open import Reader, open_messages

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Reason in the quarantine for a message whose process died and could not say why.
PROCESS_DIED: Final = "process died"
#: Times that a message which fails by itself is handled before it is put into quarantine.
MOST_ATTEMPTS: Final = 3
#: Share of the statement time-out that a small write takes at most if Postgres is well. On any disk it takes a
#: hundredth of that.
WELL_SHARE: Final = 0.1


#: Tries again while Postgres or Redis fails: what is known of an attempt would be lost.
_once_postgres_is_back: Final = retry(
    retry=retry_if_exception(is_outage),
    wait=wait_random_exponential(multiplier=0.2, max=3),
    stop=stop_after_attempt(10) | stop_after_delay(20),
    reraise=True,
)


def handle(resources: Worker, queue: Queue, entries: Sequence[Entry], *, alone: bool) -> None:
    """Handle messages; when this returns, their effects are committed, or they are in a queue again.

    Args:
        entries: as ingest enqueued them.
        alone: whether they, or a neighbour, failed before: then each becomes a task of its own, and its attempts are
            counted.

    Raises:
        Exception: one that `is_outage`: not caused by the messages, which are to come back.
    """
    if alone and len(entries) == 1:
        _handle_alone(resources, queue, entries[0])
    elif alone:
        _scatter(resources, queue, entries)
    else:
        try:
            steps.run(resources, queue, entries)
        except Exception as error:
            if is_outage(error) and not is_costly(error):
                raise
            log.warning("batch_failed", queue=queue.name, messages=len(entries), exc_info=error)
            metrics.TASKS_RETURNED.labels(queue.name, "message").inc()
            _scatter(resources, queue, entries)


def _scatter(resources: Worker, queue: Queue, entries: Sequence[Entry]) -> None:
    for entry in entries:
        send_entries(resources.app, queue, [entry], alone=True)


def _handle_alone(resources: Worker, queue: Queue, entry: Entry) -> None:
    """Handle one message. Its attempts are counted before each starts, so that even one that kills its process ends."""
    if not steps.without_copies(resources.pool, [entry], resources.settings.ingest.claim_ttl):
        # A copy, or the task came back after its commit: what is done has no attempts. A message that is not stale
        # waits for whoever is about to take it out of the ledger.
        with resources.pool.connection() as connection:
            ledger.forget_attempts(connection, entry)
        return
    with resources.pool.connection() as connection:
        attempts = ledger.attempts(connection, [entry]).get(entry.hash, 0)
    if attempts >= MOST_ATTEMPTS:
        # It is not opened any more.
        _quarantine(resources, queue, entry, reason=PROCESS_DIED, attempts=attempts, owner=None)
        return
    was_well = _writes_quickly(resources, ledger.count_attempt, entry)
    try:
        steps.run(resources, queue, [entry], alone=True)
    except Exception as error:
        if is_outage(error) and not (was_well and _is_its_own(resources, entry, error)):
            _refund(resources, entry)
            raise
        attempts += 1
        log.warning("message_failed", queue=queue.name, trace_id=entry.trace_id, attempt=attempts, exc_info=error)
        if attempts < MOST_ATTEMPTS:
            send_entries(resources.app, queue, [entry], alone=True)
        else:
            owner = _owner(resources, entry)
            _quarantine(resources, queue, entry, reason=type(error).__name__, attempts=attempts, owner=owner)


def _is_its_own(resources: Worker, entry: Entry, error: Exception) -> bool:
    """Return whether a message caused an error that looks like an outage by its cost: Postgres is well without it."""
    try:
        return is_cut(error) or (is_costly(error) and _writes_quickly(resources, ledger.touch_attempt, entry))
    except Exception as unwell:
        if not is_outage(unwell):
            raise
        return False


def _writes_quickly(resources: Worker, write: Callable[[Connection, Entry], None], entry: Entry) -> bool:
    """Commit a small write, and say whether it was as quick as it is if Postgres is well."""
    with resources.pool.connection() as connection:
        start = time.monotonic()
        write(connection, entry)
        connection.commit()
        return time.monotonic() - start < WELL_SHARE * resources.settings.postgres.statement_timeout


def _owner(resources: Worker, entry: Entry) -> Installation | None:
    reader = Reader(REGISTRATION, resources.identity)
    [message] = open_messages([entry], reader, {})
    return message.content.installation if isinstance(message.content, OpenedRegistration) else None


@_once_postgres_is_back
def _quarantine(
    resources: Worker, queue: Queue, entry: Entry, *, reason: str, attempts: int, owner: Installation | None
) -> None:
    now = resources.now()
    pseudonyms = resources.identity.pseudonyms(owner) if owner else (None, None)
    refused = message_event(
        Task(queue, 1, now, resources.worker),
        entry,
        EventKind.REFUSED,
        now,
        failure=Failure.QUARANTINED,
        pseudonyms=pseudonyms,
    )
    with resources.pool.connection() as connection:
        ledger.quarantine(connection, queue, entry, reason=reason, attempts=attempts, owner=owner)
        events.add(connection, [refused])
    count_events([refused])
    metrics.BATCH_SIZE.labels(queue.name).observe(1)
    metrics.QUARANTINED.labels(queue.name).inc()
    log.error("message_quarantined", queue=queue.name, trace_id=entry.trace_id, reason=reason, attempts=attempts)


@_once_postgres_is_back
def _refund(resources: Worker, entry: Entry) -> None:
    """Take back an attempt that failed because Postgres or Redis failed, once Postgres is back."""
    with resources.pool.connection() as connection:
        ledger.refund_attempt(connection, entry)
