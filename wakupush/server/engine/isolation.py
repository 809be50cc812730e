"""Handling messages all at once, and each alone if one of them causes an error."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog
from celery.exceptions import SoftTimeLimitExceeded
from psycopg import Connection

from wakupush.model.entries import Entry, Task
from wakupush.model.events import EventKind, message_event
from wakupush.model.failures import Failure
from wakupush.model.queues import Queue
from wakupush.model.registrations import Installation
from wakupush.postgres import events, ledger
from wakupush.redis.sending import send_entries
from wakupush.runtime import metrics
from wakupush.server.delivery.events import count_events
from wakupush.server.engine.engine import Engine
from wakupush.server.engine.message import Readable
from wakupush.server.engine.open import Reader, open_asymmetric
from wakupush.server.engine.run import run, without_copies
from wakupush.server.errors import is_costly, is_cut, is_outage, once_postgres_is_back

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Reason in the quarantine for a message whose process died and could not say why.
PROCESS_DIED: Final = "process died"
#: Times that a message which fails by itself is handled before it is put into quarantine.
MOST_ATTEMPTS: Final = 3
#: Share of the statement time-out that a small write takes at most if Postgres is well. On any disk it takes a
#: hundredth of that.
WELL_SHARE: Final = 0.1


def handle(engine: Engine, queue: Queue, entries: Sequence[Entry], *, alone: bool, is_rest: bool = False) -> None:
    """Handle messages; when this returns, their effects are committed, or they are in a queue again.

    Args:
        entries: as ingest enqueued them.
        alone: whether they, or a neighbour, failed before: then each becomes a task of its own, and its attempts are
            counted.
        is_rest: whether they came through the queue `rest`.

    Raises:
        Exception: one that `is_outage`: not caused by the messages, which are to come back.
    """
    if alone and len(entries) == 1:
        _handle_alone(engine, queue, entries[0], is_rest=is_rest)
    elif alone:
        _scatter(engine, queue, entries, is_rest=is_rest)
    else:
        try:
            run(engine, queue, entries, is_rest=is_rest)
        except Exception as error:
            if is_outage(error) and not is_costly(error):
                raise
            log.warning("batch_failed", queue=queue.name, messages=len(entries), exc_info=error)
            metrics.TASKS_RETURNED.labels(queue.name, "message").inc()
            _scatter(engine, queue, entries, is_rest=is_rest)


def _scatter(engine: Engine, queue: Queue, entries: Sequence[Entry], *, is_rest: bool) -> None:
    # Each is opened anew, in case that what another worker sealed is the fault.
    for entry in entries:
        send_entries(engine.app, queue, [replace(entry, opened=b"")], alone=True, rest=is_rest)


def _handle_alone(engine: Engine, queue: Queue, entry: Entry, *, is_rest: bool) -> None:
    """Handle one message. Its attempts are counted before each starts, so that even one that kills its process ends."""
    if not without_copies(engine.pool, [entry], engine.settings.ingest.claim_ttl):
        # A copy, or the task came back after its commit: what is done has no attempts. A message that is not stale
        # waits for whoever is about to take it out of the ledger.
        with engine.pool.connection() as connection:
            ledger.forget_attempts(connection, entry)
        return
    with engine.pool.connection() as connection:
        attempts = ledger.attempts(connection, [entry]).get(entry.hash, 0)
    if attempts >= MOST_ATTEMPTS:
        # It is not opened any more.
        _quarantine(engine, queue, entry, reason=PROCESS_DIED, attempts=attempts, owner=None)
        return
    was_well = _writes_quickly(engine, ledger.count_attempt, entry)
    try:
        run(engine, queue, [entry], alone=True, is_rest=is_rest)
    except Exception as error:
        if is_outage(error) and not (was_well and _is_its_own(engine, entry, error)):
            _refund(engine, entry)
            raise
        attempts += 1
        log.warning("message_failed", queue=queue.name, trace_id=entry.trace_id, attempt=attempts, exc_info=error)
        if attempts < MOST_ATTEMPTS:
            send_entries(engine.app, queue, [entry], alone=True, rest=is_rest)
        else:
            owner = _owner(engine, entry)
            _quarantine(engine, queue, entry, reason=type(error).__name__, attempts=attempts, owner=owner)


def _is_its_own(engine: Engine, entry: Entry, error: Exception) -> bool:
    """Return whether a message caused an error that looks like an outage by its cost: Postgres is well without it."""
    try:
        return is_cut(error) or (is_costly(error) and _writes_quickly(engine, ledger.touch_attempt, entry))
    except Exception as unwell:
        if not is_outage(unwell):
            raise
        return False


def _writes_quickly(engine: Engine, write: Callable[[Connection, Entry], None], entry: Entry) -> bool:
    """Commit a small write, and say whether it was as quick as it is if Postgres is well."""
    with engine.pool.connection() as connection:
        start = time.monotonic()
        write(connection, entry)
        connection.commit()
        return time.monotonic() - start < WELL_SHARE * engine.settings.postgres.statement_timeout


def _owner(engine: Engine, entry: Entry) -> Installation | None:
    """Return the installation that a message is about, if its kind says so and it can be read.

    No kind on a public topic says so.
    """
    try:
        envelope = open_asymmetric(entry, engine.identity)
        for kind in engine.kinds.by_queue.values():
            content = Reader(engine.kinds, kind, engine.identity).read(envelope) if kind.owner else None
            if kind.owner and isinstance(content, Readable):
                return kind.owner(content)
    except SoftTimeLimitExceeded:
        raise
    except Exception:  # noqa: BLE001 - to open or read it may be what failed, which is logged already
        return None
    return None


@once_postgres_is_back
def _quarantine(
    engine: Engine, queue: Queue, entry: Entry, *, reason: str, attempts: int, owner: Installation | None
) -> None:
    now = engine.now()
    # It names no user: the message lies in the quarantine with the user's name and its time.
    refusal = message_event(
        Task(queue, 1, now, engine.worker), entry, EventKind.REFUSED, now, failure=Failure.QUARANTINED
    )
    with engine.pool.connection() as connection:
        ledger.quarantine(connection, queue, entry, reason=reason, attempts=attempts, owner=owner)
        events.add(connection, [refusal], engine.identity)
    count_events([refusal])
    metrics.BATCH_SIZE.labels(queue.name).observe(1)
    metrics.QUARANTINED.labels(queue.name).inc()
    log.error("message_quarantined", queue=queue.name, trace_id=entry.trace_id, reason=reason, attempts=attempts)


@once_postgres_is_back
def _refund(engine: Engine, entry: Entry) -> None:
    """Take back an attempt that failed because Postgres or Redis failed, once Postgres is back."""
    with engine.pool.connection() as connection:
        ledger.refund_attempt(connection, entry)
