"""Jobs that bound what is stored: what is past its time, and what is too much."""

import os
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from typing import Final

import structlog
from psycopg import Connection
from psycopg_pool import PoolTimeout

from wakupush.postgres import maintenance, message_segments, quarantine, query_topics, registrations, token_trials
from wakupush.redis import presence, watched
from wakupush.runtime import metrics
from wakupush.runtime.connections.postgres import autocommit
from wakupush.runtime.settings import RetentionSettings
from wakupush.server.beat.beat import Beat
from wakupush.server.errors import is_outage

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Chunks that one run deletes by a rule at most.
MOST_CHUNKS: Final = 1000
#: Chunks of topics that one run looks at, at most: a million topics. Topics that nobody uses any more do no harm.
MOST_TOPIC_CHUNKS: Final = 100
#: Users whose topics, two for each, go in one transaction, which holds registrations up: 2.3 ms each on a cold disk.
LOCKED_USERS: Final = 20
#: Seconds for which a part waits for the others: as long as the window of reconcile, which may bring the last one. A
#: part that comes later completes none.
SEGMENT_SECONDS: Final = 86_400.0
#: Parts that are kept of all signers together; above it chance decides which messages lose theirs.
SEGMENTS: Final = 10_000
#: Bytes of these parts.
SEGMENT_BYTES: Final = 256_000_000
#: Seconds for which a run puts rows of a table in order at most: a job that takes two hours counts as stuck.
SORT_SECONDS: Final = 1500.0
#: Bytes of messages in quarantine; beyond that chance decides which to drop.
QUARANTINE_BYTES: Final = 256_000_000
#: Seconds after which an export that has not run any more is forgotten: nobody waits for the lake.
EXPORT_SECONDS: Final = 30 * 86_400.0


def prune(beat: Beat) -> None:
    """Make partitions, delete what is past its retention, put rows of past days in order, stop watching unused topics.

    Each rule runs on its own; when all have run, the job fails if one did.

    Raises:
        PoolTimeout: Postgres cannot be reached; the rules that are left do not run.
        Exception: of the first rule that failed, if possible one that is no outage.
    """
    counts: dict[str, int | None] = {}
    failures: list[Exception] = []
    for name, work in _work(beat).items():
        try:
            counts[name] = work()
        except PoolTimeout:
            raise
        except Exception as error:
            log.warning("prune_rule_failed", rule=name, exc_info=error)
            failures.append(error)
    log.info("pruned", **{name: count for name, count in counts.items() if count is not None})
    if failures:
        raise next((error for error in failures if not is_outage(error)), failures[0])


def _work(beat: Beat) -> dict[str, Callable[[], int | None]]:
    """Return what is to be done, by the names of the rules: first what loses rows, or grows most, if it is not done."""
    keep = beat.settings.retention
    today = datetime.fromtimestamp(beat.now(), UTC).date()
    work: dict[str, Callable[[], int | None]] = {
        "partitions": partial(_create_partitions, beat, today),
        maintenance.LEDGER: partial(_drop_partitions, beat, maintenance.LEDGER, keep.ledger),
        maintenance.EVENTS: partial(_drop_events, beat),
        maintenance.ADMITTED_REQUESTS: partial(
            _drop_partitions, beat, maintenance.ADMITTED_REQUESTS, keep.admitted_requests
        ),
        **{
            table: partial(_in_chunks, beat, partial(maintenance.delete, table=table, keep=seconds))
            for table, seconds in rules(keep).items()
        },
        "delivery_events_default": partial(_delete_events, beat),
    }
    if keep.registrations is not None:
        unregister = partial(registrations.unregister_dead, seconds=keep.registrations, most=maintenance.CHUNK_ROWS)
        work["registrations"] = partial(_in_chunks, beat, unregister)
    work["topics"] = partial(_unwatch, beat)
    # The dead letters of an outage take 15 minutes a million.
    work |= {f"{table}_sorted": partial(_sort, beat, table) for table in maintenance.SORTED}
    return work


def rules(keep: RetentionSettings) -> dict[str, float]:
    """Return what is deleted row by row, by the names that `maintenance.delete` takes, and after how many seconds."""
    return {
        "deliveries": keep.deliveries,
        "dead_letters": keep.dead_letters,
        "ledger_default": keep.ledger,
        "event_export": EXPORT_SECONDS,
        "admitted_requests_default": keep.admitted_requests,
        "message_attempts": keep.ledger,
        "quarantine": keep.dead_letters,
        "app_token_trials": token_trials.WINDOW_SECONDS,
    }


def _in_chunks(beat: Beat, delete: Callable[[Connection], int]) -> int:
    deleted = 0
    for _ in range(MOST_CHUNKS):
        with beat.pool.connection() as connection:
            chunk = delete(connection)
        deleted += chunk
        if chunk < maintenance.CHUNK_ROWS:
            break
    return deleted


def _sort(beat: Beat, table: str) -> None:
    """Put the rows of past days in order, as many as there is time for; the next run goes on with the others."""
    start: bytes | None = b""
    end = time.monotonic() + SORT_SECONDS
    while start is not None and time.monotonic() < end:
        with beat.pool.connection() as connection:
            start = maintenance.sort(connection, table, start)


def _create_partitions(beat: Beat, today: date) -> None:
    with beat.pool.connection() as connection, autocommit(connection):
        maintenance.create_partitions(connection, today)


def _drop_partitions(beat: Beat, table: str, keep: float) -> int:
    with beat.pool.connection() as connection, autocommit(connection):
        return maintenance.drop_partitions(connection, table, keep)


def _event_retention(beat: Beat, connection: Connection) -> tuple[float, float]:
    """Return the seconds for which events are kept, and for which those are that an export has yet to take."""
    keep = beat.settings.retention
    return (
        (keep.exported_events, keep.missing_events) if maintenance.export_is_known(connection) else (keep.events,) * 2
    )


def _drop_events(beat: Beat) -> int:
    with beat.pool.connection() as connection, autocommit(connection):
        keep, keep_missing = _event_retention(beat, connection)
        days = maintenance.drop_events(connection, keep, keep_missing, beat.settings.retention.event_bytes)
    if lost := days["lost"]:
        metrics.EVENT_DAYS_LOST.inc(lost)
        log.error("events_lost", days=lost)
    return days.total()


def _delete_events(beat: Beat) -> int:
    """Delete events in no partition: those whose time is wrong, or of a day that had none."""
    with beat.pool.connection() as connection:
        keep, keep_missing = _event_retention(beat, connection)
    delete = partial(maintenance.delete, table="delivery_events_default", keep=keep, keep_missing=keep_missing)
    return _in_chunks(beat, delete)


def _unwatch(beat: Beat) -> int:
    """Delete the topics of users without a registration; return how many users had some.

    A run begins at random. So runs that only get to a part of the topics get to all of them in time, and a run that was
    interrupted need not be continued.
    """
    count = 0
    start = after = os.urandom(64)
    is_second_half = False
    for _ in range(MOST_TOPIC_CHUNKS):
        with beat.pool.connection() as connection:
            last, users = query_topics.unused(connection, after, maintenance.CHUNK_ROWS)
        for position in range(0, len(users), LOCKED_USERS):
            with beat.pool.connection() as connection:
                topics = query_topics.remove_unused(connection, users[position : position + LOCKED_USERS])
                watched.remove(beat.redis, topics)
        count += len(users)
        if is_second_half and (last is None or last >= start):
            break
        after, is_second_half = (last, is_second_half) if last else (b"", True)
    return count


def expire_segments(beat: Beat) -> int:
    """Delete segments whose message was not completed in time, and those of random messages if there are too many.

    Chance decides, not age: a flood of parts that are never completed does not shut out a message whose parts come one
    after the other.

    Returns:
        How many.
    """
    with beat.pool.connection() as connection:
        expired = message_segments.expire(connection, SEGMENT_SECONDS)
        trimmed = message_segments.trim_all(connection, parts=SEGMENTS, bytes=SEGMENT_BYTES)
    if trimmed:
        log.info("segments_dropped", segments=trimmed)
    return expired + trimmed


def trim_quarantine(beat: Beat) -> int:
    """Delete random messages from the quarantine if it has too many bytes; return how many."""
    with beat.pool.connection() as connection:
        dropped = quarantine.trim(connection, bytes=QUARANTINE_BYTES)
    if dropped:
        metrics.QUARANTINE_DROPPED.inc(dropped)
        log.error("quarantine_full", dropped=dropped)
    return dropped


def forget_processes(beat: Beat) -> None:
    """Remove from Redis what processes wrote about themselves that ended, or have been silent for an hour."""
    presence.forget(beat.redis)
