"""Handling the messages of a task: all at once, and each alone where one of them is to blame."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import structlog
from tenacity import retry, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from wakupush import metrics
from wakupush.events import EventKind
from wakupush.failures import Failure
from wakupush.queues import DISPATCH, QUERY, REGISTRATION, send_entries
from wakupush.server import deliveries, publishing, queries, registrations, requests
from wakupush.server.batch import Batch, BatchTooLargeError
from wakupush.server.faults import COLLISIONS, INFRASTRUCTURE, is_outage
from wakupush.state import ledger

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from psycopg import Connection

    from wakupush.queues import Entry, Queue
    from wakupush.server.context import Context
    from wakupush.server.requests import Accepted
    from wakupush.state.registrations import Installation

P = ParamSpec("P")
T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

HANDLERS: dict[str, Callable[[Batch, Connection, list[Entry]], Accepted | None]] = {
    REGISTRATION.name: registrations.handle,
    QUERY.name: queries.handle,
    DISPATCH.name: requests.handle,
}
#: Reason in the quarantine of a message whose process never came back to say why.
PROCESS_DIED = "process died"


def handle(context: Context, queue: Queue, entries: list[Entry], *, alone: bool) -> None:
    """Handle messages; when this returns, their effects are committed, or they are in a queue again.

    Args:
        context: of this process.
        queue: where they came from.
        entries: as ingest enqueued them.
        alone: whether they, or a neighbour, failed before: then each becomes a task of its own, and its attempts are
            counted.

    Raises:
        Exception: one that `is_outage`: no fault of the messages; they are to come back.
    """
    if alone and len(entries) == 1:
        _handle_alone(context, queue, entries[0])
    elif alone:
        _scatter(context, queue, entries)
    else:
        try:
            batch, accepted = _commit(context, queue, entries, {}, alone=False)
        except BatchTooLargeError:
            log.info("batch_too_large", queue=queue.name, messages=len(entries))
            _scatter(context, queue, entries)
        except Exception as error:
            if is_outage(error):
                raise
            log.warning("batch_failed", queue=queue.name, messages=len(entries), exc_info=error)
            metrics.TASKS_RETURNED.labels(queue.name, "message").inc()
            _scatter(context, queue, entries)
        else:
            _finish(batch, accepted)


def _scatter(context: Context, queue: Queue, entries: list[Entry]) -> None:
    for entry in entries:
        send_entries(context.app, queue, [entry], alone=True)


def _handle_alone(context: Context, queue: Queue, entry: Entry) -> None:
    """Handle one message whose attempts are counted, before each starts, so that even one that kills ends."""
    most = context.settings.worker.max_attempts
    with context.pool.connection() as connection:
        attempts = ledger.attempts(connection, [entry]).get(entry.hash, 0)
        if attempts < most:
            ledger.count_attempt(connection, entry)
    if attempts >= most:
        # Nothing of it is looked at any more.
        _quarantine(context, queue, entry, reason=PROCESS_DIED, attempts=attempts, owner=None)
        return
    try:
        batch, accepted = _commit(context, queue, [entry], {}, alone=True)
    except Exception as error:
        if is_outage(error):
            _refund(context, entry)
            raise
        attempts += 1
        log.warning("message_failed", queue=queue.name, trace_id=entry.trace_id, attempt=attempts, exc_info=error)
        if attempts < most:
            send_entries(context.app, queue, [entry], alone=True)
        else:
            owner = registrations.owner(context, entry)
            _quarantine(context, queue, entry, reason=type(error).__name__, attempts=attempts, owner=owner)
    else:
        _finish(batch, accepted)


def _quarantine(
    context: Context, queue: Queue, entry: Entry, *, reason: str, attempts: int, owner: Installation | None
) -> None:
    """Put a message aside."""
    batch = Batch(context, queue, 1, context.now())
    batch.record(entry, EventKind.REFUSED, failure=Failure.QUARANTINED, installation=owner)
    with context.pool.connection() as connection:
        ledger.quarantine(connection, queue, entry, reason=reason, attempts=attempts, owner=owner)
        batch.write(connection)
    batch.count()
    metrics.QUARANTINED.labels(queue.name).inc()
    log.error("message_quarantined", queue=queue.name, trace_id=entry.trace_id, reason=reason, attempts=attempts)


@retry(
    retry=retry_if_exception_type(INFRASTRUCTURE),
    wait=wait_random_exponential(multiplier=0.2, max=3),
    stop=stop_after_attempt(10) | stop_after_delay(20),
    reraise=True,
)
def _refund(context: Context, entry: Entry) -> None:
    """Take back an attempt that failed for want of Postgres or Redis, once Postgres is there."""
    with context.pool.connection() as connection:
        ledger.refund_attempt(connection, entry)


@retry(
    retry=retry_if_exception_type(COLLISIONS),
    wait=wait_random_exponential(multiplier=0.02, max=0.5),
    stop=stop_after_attempt(5),
    reraise=True,
)
def _commit(
    context: Context, queue: Queue, entries: list[Entry], allowed: dict[tuple[str, bytes, int], bool], *, alone: bool
) -> tuple[Batch, Accepted | None]:
    """Commit everything that comes of messages in one transaction; what limits said of them goes into `allowed`."""
    batch = Batch(context, queue, len(entries), context.now(), allowed=allowed)
    with context.pool.connection() as connection:
        accepted = HANDLERS[queue.name](batch, connection, entries)
        batch.write(connection)
        if alone:
            ledger.forget_attempts(connection, entries[0])
    return batch, accepted


def _finish(batch: Batch, accepted: Accepted | None) -> None:
    """Do what is to be done once a batch is committed.

    Raises:
        Exception: one that `is_outage`, where messages could not be passed on to other queues; they come back with the
            batch. Anything else that is cut off, the schedule makes up for.
    """
    batch.count()
    posts = _without_fail(deliveries.start, batch.context, accepted.postings) if accepted else None
    for queue, group in groupby(sorted(batch.passed_on, key=_queue_name), key=lambda pair: pair[0]):
        send_entries(batch.context.app, queue, [entry for _, entry in group])
    if accepted and posts:
        _without_fail(_correct, batch, accepted, posts)
    # Registrations are answered to keys that stay, and are sent again where the answer was lost.
    is_ephemeral = batch.queue is not REGISTRATION
    again_after = batch.context.settings.worker.repeat_answers_after if is_ephemeral else 0.0
    _without_fail(publishing.publish, batch.context, batch.outbox, again_after=again_after)


def _correct(batch: Batch, accepted: Accepted, posts: list[Future[deliveries.Failed]]) -> None:
    """Wait for the posts as long as the answers can wait, and correct those that turned out to be wrong."""
    oldest = min(asked.entry.seen for asked in accepted.asked)
    within = batch.context.settings.worker.answer_within
    # ingest saw it by its own clock, which may be ahead of ours.
    failed = deliveries.wait_for(posts, min(within, oldest + within - batch.context.now()))
    if failed:
        with batch.context.pool.connection() as connection:
            requests.correct(batch, connection, accepted, failed)


def _without_fail(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Do work whose effects are committed already as far as they must be: a failure is logged, and that is all."""
    try:
        return work(*args, **kwargs)
    except Exception:
        log.exception("unfinished")
        return None


def _queue_name(pair: tuple[Queue, Entry]) -> str:
    return pair[0].name
