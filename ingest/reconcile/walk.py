"""A walk over a stretch of time of a Store, which enqueues missing messages."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Event
from typing import Self, TypeVar

import structlog
from psycopg_pool import ConnectionPool

from wakupush.ingest.enqueue import Enqueuer
from wakupush.ingest.reconcile.peers import PeerStore
from wakupush.ingest.reconcile.rest import LOOK_SECONDS, Rest
from wakupush.model.entries import Entry
from wakupush.model.queues import Queue
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import reconciliation
from wakupush.postgres.reconciliation import Track
from wakupush.redis import claims, watched
from wakupush.runtime import metrics
from wakupush.runtime.logging import is_logged
from wakupush.server.errors import is_outage
from wakupush.waku.errors import NodeError
from wakupush.waku.store import Store
from wakupush.waku.store_codec import Page, Query

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

NANOSECONDS = 10**9
#: Seconds by which a watermark can be ahead of this clock; one further ahead is wrong, and is corrected.
AHEAD_SECONDS = 120.0
#: Seconds of a slice at most, and of a Store peer's, which is asked less often.
SLICE_SECONDS = 300.0
PEER_SLICE_SECONDS = 3600.0
#: Longest pause in seconds after a walk failed.
MOST_PAUSE = 30.0

T = TypeVar("T")


class Interrupted(Exception):
    """A walk ended before its last page, so its stretch may still lack messages."""


class Stopped(Interrupted):
    """The process is to end."""


class NotEnqueued(Interrupted):
    """Redis failed, or a queue is full: missing messages are still missing."""


class NotWatching(Interrupted):
    """The set of watched topics is not complete, so that queries cannot be distinguished from foreign messages."""


class TooLong(Interrupted):
    """There are more pages than a slice may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkKind:
    """The messages that a walk looks for: those of one queue, so that its backlog holds up no others."""

    #: The queue of these messages; it names the walk in watermarks, metrics and logs.
    queue: Queue
    #: Empty means the whole shard, of which the watched topics are taken.
    content_topics: tuple[str, ...] = ()
    #: How many seconds back a walk may begin.
    window: float

    @property
    def name(self) -> str:
        """The name of its walks."""
        return self.queue.name


@dataclass(slots=True)
class Tally:
    """The counts of a walk so far."""

    #: From when on, in seconds since the epoch.
    since: float
    examined: int = 0
    malformed: int = 0
    #: For us, and not in the ledger.
    missing: int = 0
    enqueued: int = 0
    #: Least timestamp of the missing ones, in nanoseconds since the epoch.
    oldest_missing: int | None = None

    def add(self, other: Self) -> None:
        """Add the counts of another stretch."""
        self.examined += other.examined
        self.malformed += other.malformed
        self.missing += other.missing
        self.enqueued += other.enqueued
        self.note(other.oldest_missing)

    def note(self, oldest: int | None) -> None:
        """Note the timestamp of a missing message."""
        if oldest is not None:
            self.oldest_missing = oldest if self.oldest_missing is None else min(oldest, self.oldest_missing)


@dataclass(slots=True, kw_only=True)
class Walker:
    """Walks one Store for messages of one kind."""

    #: Name of the node.
    name: str
    store: Store | PeerStore
    kind: WalkKind
    enqueuer: Enqueuer
    pool: ConnectionPool
    rest: Rest
    stop: Event
    #: Seconds of a slice at most.
    slice_seconds: float = SLICE_SECONDS
    #: Monotonic seconds of the last answer of the Store, or of the last turn of a loop.
    turned_at: float = field(default_factory=time.monotonic)
    #: By shard: failures in a row, and the monotonic time of the next attempt after them.
    failures: Counter[str] = field(default_factory=Counter)
    retry_at: dict[str, float] = field(default_factory=dict)

    def track(self, pubsub_topic: str) -> Track:
        """Return the name of the watermark of a shard."""
        return Track(self.name, pubsub_topic, self.kind.name)

    def attempt(self, pubsub_topic: str, work: Callable[[], T]) -> T | None:
        """Return the result of `work` on a shard; None if it was not finished, which is logged."""
        try:
            result = work()
        except Stopped:
            return None
        except Exception as error:
            self.failures[pubsub_topic] += 1
            pause = min(MOST_PAUSE, 2.0 ** min(self.failures[pubsub_topic], 10))
            self.retry_at[pubsub_topic] = time.monotonic() + pause
            metrics.STORE_WALKS.labels(self.kind.name, type(error).__name__).inc()
            facts = {"store": self.name, "pubsub_topic": pubsub_topic, "walk": self.kind.name}
            if not (isinstance(error, NodeError | Interrupted) or is_outage(error)):
                log.exception("walk_failed", **facts)
            elif is_logged(self.failures[pubsub_topic]):
                log.warning("walk_failed", **facts, error=type(error).__name__, failures=self.failures[pubsub_topic])
            return None
        del self.failures[pubsub_topic]
        return result

    def is_due(self, pubsub_topic: str) -> bool:
        """Return whether a shard's pause is over, which grows with each failure; shards that work have none."""
        return time.monotonic() >= self.retry_at.get(pubsub_topic, -math.inf)

    def settle(self, pubsub_topic: str, walked_to: float, oldest_missing: int | None) -> None:
        """Move the watermark to the end of a walk, or to before the oldest message that it found missing.

        Args:
            walked_to: seconds since the epoch.
            oldest_missing: nanoseconds since the epoch.
        """
        watermark = int(walked_to * NANOSECONDS)
        if oldest_missing is not None:
            watermark = min(watermark, oldest_missing - 1)
        latest = int((time.time() + AHEAD_SECONDS) * NANOSECONDS)
        with self.pool.connection() as connection:
            at = reconciliation.advance(connection, self.track(pubsub_topic), watermark, most=latest)
        self.show_watermark(pubsub_topic, at / NANOSECONDS)

    def watermark(self, pubsub_topic: str) -> float | None:
        """Return up to when everything that the Store has is in the ledger, in seconds since the epoch; None: unknown.

        A watermark that lies more than `AHEAD_SECONDS` in the future was set by a clock that was ahead.
        """
        with self.pool.connection() as connection:
            at = reconciliation.watermark(connection, self.track(pubsub_topic))
        if at is None or at > (time.time() + AHEAD_SECONDS) * NANOSECONDS:
            return None
        # Each walk begins with this, so that the metric is right also if the Store has been dead since the start.
        self.show_watermark(pubsub_topic, at / NANOSECONDS)
        return at / NANOSECONDS

    def show_watermark(self, pubsub_topic: str, at: float) -> None:
        """Set the metric of a shard's watermark (seconds since the epoch)."""
        metrics.STORE_WATERMARK.labels(self.name, pubsub_topic, self.kind.name).set(at)

    def walk(self, pubsub_topic: str, since: float, until: float, *, most_pages: int | None = None) -> Tally:
        """Enqueue the missing messages of a stretch of time of a shard, and return the counts.

        Args:
            since: from when on, in seconds since the epoch.
            until: up to when, both inclusive.
            most_pages: pages above which it is given up.

        Raises:
            Interrupted: the walk ended before its last page.
            NodeError: the Store failed.
            Exception: one that `is_outage`.
        """
        query = Query(
            pubsub_topic=pubsub_topic,
            content_topics=self.kind.content_topics,
            start=max(1, int(since * NANOSECONDS)),
            end=max(1, int(until * NANOSECONDS)),
        )
        mark = self._watched_mark()
        tally = Tally(since)
        for number, page in enumerate(self._pages(query)):
            if most_pages is not None and number >= most_pages:
                raise TooLong
            self._heal(query, page, tally)
        if self._watched_mark() != mark:  # they were incomplete in between
            raise NotWatching
        metrics.STORE_WALKS.labels(self.kind.name, "finished").inc()
        write = log.info if tally.missing or tally.malformed else log.debug
        write(
            "walk_finished",
            store=self.name,
            pubsub_topic=pubsub_topic,
            walk=self.kind.name,
            since=round(since, 3),
            until=round(until, 3),
            examined=tally.examined,
            missing=tally.missing,
            enqueued=tally.enqueued,
            malformed=tally.malformed,
        )
        return tally

    def _watched_mark(self) -> bytes | None:
        """Return the mark of the watched topics if this walk looks for queries, which it knows by them.

        Raises:
            NotWatching: queries cannot be distinguished from foreign messages.
        """
        if self.kind.content_topics:
            return None
        mark = watched.mark_of_complete(self.enqueuer.redis)
        if mark is None:
            raise NotWatching
        return mark

    @property
    def _in_work_seconds(self) -> float:
        """Seconds for which a message that was handled alone is left alone: a query only lives for minutes."""
        return reconciliation.IN_WORK_SECONDS if self.kind.content_topics else self.enqueuer.settings.claim_ttl

    def _pages(self, query: Query) -> Iterator[Page]:
        """Yield the pages of a walk, each when the queue is not behind.

        Raises:
            Stopped: the process is to end.
        """
        # Most messages of the own topics are in the ledger, so hashes suffice at first; of a whole shard hardly any is.
        pages = self.store.walk(query, with_messages=not self.kind.content_topics)
        while True:
            self.turned_at = time.monotonic()
            while self.rest.is_due(self.kind.queue) and not self.stop.wait(LOOK_SECONDS):
                self.turned_at = time.monotonic()
            if self.stop.is_set():
                raise Stopped
            page = next(pages, None)
            if page is None:
                return
            self.turned_at = time.monotonic()
            yield page

    def _heal(self, query: Query, page: Page, tally: Tally) -> None:
        """Enqueue the messages of a page that are for us, are not in the ledger, and that no worker is handling."""
        tally.examined += len(page.messages)
        metrics.STORE_EXAMINED.labels(self.kind.name).inc(len(page.messages))
        # Two entries with one hash agree in every field that is used here.
        messages = {entry.hash: entry.message for entry in page.messages}
        in_work_by_hash = {}
        if messages:
            with self.pool.connection() as connection:
                in_work_by_hash = reconciliation.find_missing(connection, messages, self._in_work_seconds)
        absent = [hash_ for hash_ in messages if hash_ in in_work_by_hash and messages[hash_] is None]
        held = claims.held(self.enqueuer.redis, absent)
        waiting = [hash_ for hash_ in absent if hash_ in held or in_work_by_hash[hash_]]
        # Of those that wait, the watermark needs the time of the oldest alone.
        left_out = set(waiting[1:] if tally.oldest_missing is None else waiting)
        to_fetch = [hash_ for hash_ in absent if hash_ not in left_out]
        for part in self.store.fetch(query, to_fetch):
            self.turned_at = time.monotonic()
            messages |= {entry.hash: entry.message for entry in part.messages if entry.hash in in_work_by_hash}
            self._note_malformed(part.malformed, tally)
        self._note_malformed(page.malformed, tally)
        now = time.time()
        entries = [
            Entry(query.pubsub_topic, hash_, first_seen(message, query.start, now), message)
            for hash_ in in_work_by_hash
            if (message := messages[hash_]) is not None
        ]
        ours = [entry for queue, entry in self.enqueuer.ours(entries) if queue is self.kind.queue]
        if not ours and not left_out:
            return
        tally.missing += len(ours) + len(left_out)
        metrics.STORE_MISSING.labels(self.kind.name).inc(len(ours) + len(left_out))
        tally.note(min((entry.message.timestamp or query.start for entry in ours), default=None))
        if tally.oldest_missing is None:
            tally.note(query.start)  # of what waits, the Store no longer has the oldest
        result = self.enqueuer.enqueue([entry for entry in ours if not in_work_by_hash[entry.hash]])
        tally.enqueued += result.sent
        metrics.STORE_ENQUEUED.labels(self.kind.name).inc(result.sent)
        if result.dropped:
            raise NotEnqueued

    def _note_malformed(self, count: int, tally: Tally) -> None:
        tally.malformed += count
        metrics.STORE_MALFORMED.labels(self.kind.name).inc(count)


def first_seen(message: WakuMessage, start: int, now: float) -> float:
    """Return the time at which a message out of a Store counts as first seen, in seconds since the epoch.

    That is its sender's time, unless that lies in the future. A message without a time counts as old as the walk looks
    back: a push request should rather count as expired than be pushed hours late.

    Args:
        message: out of a Store.
        start: of the walk, in nanoseconds since the epoch.
        now: seconds since the epoch.
    """
    return min(now, (message.timestamp or start) / NANOSECONDS)
