"""Polling one shard of one node."""

import time
from dataclasses import dataclass, field
from threading import Event

import structlog

from wakupush.ingest.enqueue import Enqueuer
from wakupush.ingest.live.beacons import Beacons
from wakupush.model.entries import Entry
from wakupush.protocol.hashing import message_hash
from wakupush.runtime import metrics
from wakupush.runtime.logging import is_logged
from wakupush.waku.errors import NodeError, NodeUnreadable, NotSubscribed
from wakupush.waku.node import WakuNode

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Longest pause in seconds after the node failed.
MOST_PAUSE = 5.0
#: While messages wait for workers, the pause is this share of that time, in seconds at most `BACKLOG_PAUSE`: fewer and
#: larger tasks cost less, and what waits in the node need not wait in the queue.
WAIT_SHARE = 0.25
BACKLOG_PAUSE = 0.2
#: The share of the node's cache that may be filled during a pause.
CACHE_SHARE = 0.25


@dataclass(slots=True)
class Cache:
    """The node's cache for ingest; a nwaku has one cache for all shards.

    When it is full, a nwaku drops the message with the oldest sender's time for each that comes. So a client that
    stamps messages some seconds ahead, and sends enough of them, makes the node drop those of all others. Nothing here
    can prevent that; the Store has them all.
    """

    #: Messages.
    capacity: int
    #: By shard, how many messages the last read took out.
    _read_sizes: dict[str, int] = field(default_factory=dict)

    def note(self, pubsub_topic: str, messages: int) -> float:
        """Note how many messages a read took out; return how full the cache was, by the last reads of all shards."""
        self._read_sizes[pubsub_topic] = messages
        return sum(list(self._read_sizes.values())) / self.capacity


@dataclass(slots=True)
class Poller:
    """Polls one shard. It never stops doing so: an unread go-waku stops its archive, our source of healing."""

    #: The node's name, as logs and metrics have it.
    name: str
    node: WakuNode
    enqueuer: Enqueuer
    pubsub_topic: str
    poll_interval: float
    stop: Event
    cache: Cache
    #: Compares the messages that nodes hear; None if there is only one node.
    beacons: Beacons | None = None
    #: Monotonic seconds of the last turn of the loop, and of the last read that worked.
    turned_at: float = field(default_factory=time.monotonic)
    last_read: float = float("-inf")
    #: Since when messages are being dropped, in seconds since the epoch.
    gap_since: float | None = None
    _failures: int = 0
    #: Whether the last turn subscribed.
    _has_subscribed: bool = False
    #: Whether the last read found the cache full.
    _is_full: bool = False
    #: Reads with malformed messages.
    _malformed_reads: int = 0

    def __post_init__(self) -> None:
        """Show the shard as read now, so that an alert sees a node that has been down since the start."""
        for gauge in (metrics.LAST_POLL, metrics.LAST_MESSAGE):
            gauge.labels(self.name, self.pubsub_topic).set(time.time())

    @property
    def _place(self) -> dict[str, str]:
        return {"node": self.name, "pubsub_topic": self.pubsub_topic}

    def run(self) -> None:
        """Poll until `stop` is set."""
        while not self.stop.is_set():
            self.turned_at = time.monotonic()
            try:
                pause = self._turn()
            except Exception:
                # An error in our own code. Whatever it is: a poller that ended would stop the node's archive unnoticed.
                log.exception("poller_failed", **self._place)
                pause = MOST_PAUSE
            if pause:
                self.stop.wait(pause)

    def _turn(self) -> float:
        """Read once and enqueue; return the seconds to wait before the next turn."""
        try:
            batch = self.node.read(self.pubsub_topic)
        except NotSubscribed as error:
            self._note_failure()
            return self._subscribe(error)
        except NodeError as error:
            self._note_failure()
            if isinstance(error, NodeUnreadable):
                # The node has handed out its waiting messages, and forgets them.
                self._note_gap(1, time.time())
            return self._pause_after("poll_failed", error)
        self._failures = 0
        self._has_subscribed = False
        self.last_read = time.monotonic()
        now = time.time()
        metrics.LAST_POLL.labels(self.name, self.pubsub_topic).set(now)
        if self.beacons is not None:
            self.beacons.hearing.note_read(self.name, self.pubsub_topic)
        if batch.malformed:
            metrics.MESSAGES_MALFORMED.labels(self.name, self.pubsub_topic).inc(batch.malformed)
            self._note_malformed(batch.malformed)
        share = self.cache.note(self.pubsub_topic, len(batch.messages) + batch.malformed)
        self._note_full(is_full=share >= 1)
        if not batch.messages:
            return self.poll_interval
        metrics.MESSAGES_READ.labels(self.name, self.pubsub_topic).inc(len(batch.messages))
        if self.beacons is None or not all(map(self.beacons.is_beacon, batch.messages)):
            metrics.LAST_MESSAGE.labels(self.name, self.pubsub_topic).set(now)
        result = self.enqueuer.enqueue(
            [
                Entry(self.pubsub_topic, message_hash(self.pubsub_topic, message), now, message, live=True)
                for message in batch.messages
            ]
        )
        self._note_gap(result.dropped, now)
        if self.beacons is not None:
            self.beacons.hearing.note_heard(self.name, self.pubsub_topic, result.ours)
            self.beacons.note_heard(self.name, self.pubsub_topic, batch.messages)
        # A task costs as much as several messages: messages of one interval share a task.
        pause = min(WAIT_SHARE * result.queue_wait, BACKLOG_PAUSE)
        if pause > self.poll_interval and share <= CACHE_SHARE:
            return pause
        is_filled = len(batch.messages) >= self.enqueuer.settings.batch_size
        return 0.0 if is_filled or self._is_full else self.poll_interval

    def _subscribe(self, not_subscribed: NotSubscribed) -> float:
        """Subscribe at a node that is new or was restarted; reconcile brings the messages that it had since."""
        if self._has_subscribed:
            # The node took the subscription and knows nothing of it: do not pile up subscriptions.
            self._has_subscribed = False
            return self._pause_after("subscription_lost", not_subscribed)
        try:
            self.node.subscribe([self.pubsub_topic])
        except NodeError as error:
            return self._pause_after("subscribe_failed", error)
        self._has_subscribed = True
        metrics.SUBSCRIPTIONS.labels(self.name).inc()
        log.info("subscribed", **self._place)
        return 0.0

    def _pause_after(self, event: str, error: NodeError) -> float:
        self._failures += 1
        metrics.POLLS_FAILED.labels(self.name, type(error).__name__).inc()
        pause = min(MOST_PAUSE, self.poll_interval * 2.0 ** min(self._failures, 10))
        if is_logged(self._failures):
            log.warning(event, **self._place, error=type(error).__name__, failures=self._failures)
        return pause

    def _note_failure(self) -> None:
        if self.beacons is not None:
            self.beacons.hearing.note_failure(self.name, self.pubsub_topic)

    def _note_malformed(self, messages: int) -> None:
        """Log some of the reads with malformed messages: strangers decide how many there are."""
        self._malformed_reads += 1
        if is_logged(self._malformed_reads):
            log.warning("messages_malformed", **self._place, messages=messages, reads=self._malformed_reads)

    def _note_full(self, *, is_full: bool) -> None:
        """Count and log that the node may have dropped messages before they were read."""
        if is_full:
            metrics.CACHE_FULL.labels(self.name).inc()
        if is_full and not self._is_full:
            log.warning("cache_full", **self._place, capacity=self.cache.capacity)
        self._is_full = is_full

    def _note_gap(self, count: int, now: float) -> None:
        """Log the time whose messages reconcile has to bring.

        Args:
            count: how many were just now; 0 ends the time.
            now: seconds since the epoch.
        """
        if count and self.gap_since is None:
            self.gap_since = now
            log.error("gap_begins", **self._place, since=now)
        elif not count and self.gap_since is not None:
            log.error("gap_ends", **self._place, since=self.gap_since, until=now)
            self.gap_since = None
