"""The schedule: what was cut off is made up for, what is due is enqueued, what is old is deleted.

It runs in a process of its own, so that no backlog of messages and no hanging gorush holds it up, and any number of
those processes do each other no harm.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from threading import Event, Thread
from typing import TYPE_CHECKING

import structlog

from wakupush import metrics, watched
from wakupush.logging import is_told
from wakupush.server.deliveries import claim_due
from wakupush.server.faults import is_outage
from wakupush.server.feedback import enqueue_feedback
from wakupush.server.publishing import publish_overdue
from wakupush.server.tokens import watch_marking
from wakupush.state import dead_letters, maintenance, message_segments, query_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from wakupush.server.context import Resources
    from wakupush.state.maintenance import Rule

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Chunks that one run of `prune` deletes by a rule at most.
MOST_CHUNKS = 1000


def fill_watched_topics(resources: Resources) -> bool:
    """Fill the set of watched topics from Postgres if it is not complete; say whether it was not."""
    if watched.is_complete(resources.redis):
        return False
    mark = watched.begin_filling(resources.redis)
    # Registrations that added their topics to a Redis that was wiped since are waited for, so that they are read here.
    with resources.pool.connection() as connection:
        query_topics.wait_for_additions(connection)
    count = 0
    with resources.pool.connection() as connection:
        for topics in query_topics.every_topic(connection):
            watched.add(resources.redis, topics)
            count += len(topics)
    watched.mark_complete(resources.redis, mark)
    log.info("watched_topics_filled", topics=count)
    return True


def expire_segments(resources: Resources) -> int:
    """Delete segments whose message was not completed in time; return how many."""
    with resources.pool.connection() as connection:
        return message_segments.expire(connection, resources.settings.retention.segments)


def count_dead_letters(resources: Resources) -> None:
    """Show in the metrics how many dead letters there are."""
    with resources.pool.connection() as connection:
        counts = dead_letters.counts(connection)
    metrics.DEAD_LETTERS.clear()
    for (platform, reason), count in counts.items():
        metrics.DEAD_LETTERS.labels(platform.platform, reason).set(count)


def prune(resources: Resources) -> None:
    """Make partitions ahead of time, delete what is past its retention, and stop watching unused topics."""
    keep = resources.settings.retention
    today = datetime.fromtimestamp(resources.now(), UTC).date()
    with resources.pool.connection() as connection:
        maintenance.create_partitions(connection, today)
    deleted = {rule.name: _delete(resources, rule) for rule in maintenance.rules(keep)}
    for table, seconds in ((maintenance.LEDGER, keep.ledger), (maintenance.EVENTS, keep.events)):
        with resources.pool.connection() as connection:
            deleted[table.name] = maintenance.drop_partitions(connection, table, seconds, today)
    with resources.pool.connection() as connection:
        unused = query_topics.remove_unused(connection)
        watched.remove(resources.redis, unused)
    log.info("pruned", topics=len(unused), **deleted)


def _delete(resources: Resources, rule: Rule) -> int:
    deleted = 0
    for _ in range(MOST_CHUNKS):
        with resources.pool.connection() as connection:
            chunk = maintenance.delete(connection, rule)
        deleted += chunk
        if chunk < maintenance.CHUNK_ROWS:
            break
    return deleted


#: What is done, and the seconds between the end of one run and the next.
JOBS: dict[Callable[[Resources], object], float] = {
    claim_due: 0.1,
    publish_overdue: 1.0,
    fill_watched_topics: 1.0,
    enqueue_feedback: 1.0,
    expire_segments: 60.0,
    watch_marking: 60.0,
    count_dead_letters: 60.0,
    prune: 3600.0,
}


#: Seconds that the pause after a job grows to while it fails.
GROWN_SECONDS = 5.0
#: Seconds after which a job that failed runs again, at most. A `prune` that fails for want of a lock held up writes.
RETRY_SECONDS = 60.0
#: Seconds that a run of a job may take at least, before it counts as stuck; one with a longer pause may take as long.
STUCK_SECONDS = 120.0


class Turns:
    """When each job was last begun, and whether it worked last time."""

    def __init__(self) -> None:
        self._begun = dict.fromkeys(JOBS, time.monotonic())
        self._worked = dict.fromkeys(JOBS, False)

    def begin(self, work: Callable[[Resources], object]) -> None:
        """Note that a run of a job begins."""
        self._begun[work] = time.monotonic()

    def end(self, work: Callable[[Resources], object], *, worked: bool) -> None:
        """Note how a run of a job ended."""
        self._worked[work] = worked

    def healthy(self) -> dict[str, bool]:
        """Say of each job, by its name, whether it is repeated; one that fails is."""
        now = time.monotonic()
        return {
            work.__name__: now - self._begun[work] < pause + max(pause, STUCK_SECONDS) for work, pause in JOBS.items()
        }

    def ready(self) -> dict[str, bool]:
        """Say of each job, by its name, whether its last run worked."""
        return {work.__name__: worked for work, worked in self._worked.items()}


def run(resources: Resources, stop: Event, turns: Turns) -> None:
    """Run all jobs, each in a thread of its own, until told to stop; what was begun is finished."""
    threads = [
        Thread(target=_repeat, args=(resources, stop, turns, work, pause), name=work.__name__)
        for work, pause in JOBS.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _repeat(resources: Resources, stop: Event, turns: Turns, work: Callable[[Resources], object], pause: float) -> None:
    failures = 0
    while not stop.is_set():
        turns.begin(work)
        try:
            work(resources)
        except Exception as error:
            failures += 1
            turns.end(work, worked=False)
            metrics.JOBS_FAILED.labels(work.__name__).inc()
            if not is_outage(error):
                log.exception("job_failed", job=work.__name__)
            elif is_told(failures):
                log.warning("job_failed", job=work.__name__, error=type(error).__name__, failures=failures)
            stop.wait(min(pause * 2.0 ** min(failures, 10), max(pause, GROWN_SECONDS), RETRY_SECONDS))
        else:
            failures = 0
            turns.end(work, worked=True)
            stop.wait(pause)
