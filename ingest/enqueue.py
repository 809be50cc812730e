"""From messages to tasks: the claim, the limits of the queues, and one task for each kind and poll."""

import math
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby

import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from redis import Redis, RedisError
from redis import TimeoutError as TimedOut

from wakupush.ingest.routing import Routes
from wakupush.model.entries import Entry
from wakupush.model.limits import MINUTE, TOPIC_MESSAGES, Limit
from wakupush.model.queues import QUERY, QUEUES, Queue
from wakupush.protocol import payload
from wakupush.redis import backlog, claims, unopened, watched
from wakupush.redis.limits import Limiter
from wakupush.redis.sending import encoded_bytes, in_tasks, send_entries
from wakupush.runtime import metrics, tracing
from wakupush.runtime.logging import is_logged
from wakupush.runtime.settings import IngestSettings

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: The errors of Redis, raised directly or through Celery.
REDIS_ERRORS = (RedisError, OperationalError)
#: Seconds for which ingest leaves a Redis alone that did not answer in time.
LEFT_ALONE_SECONDS = 5.0
#: Seconds by which a message's time may lie in the future. No clock that is set is so wrong, and a nwaku keeps no
#: message that is off by more than 20 s; partitions of the ledger are made for days.
AHEAD_SECONDS = 86_400.0
#: How many times as large tasks are, if one read of the node brings more messages of a kind than such a task has: each
#: costs milliseconds whatever is in it, and in a backlog answers are late anyway.
BACKLOG_FACTOR = 4
#: Seconds over which the rate is averaged at which a queue gets bytes, and for which a queue counts as used.
RATE_SECONDS = 0.5
USED_SECONDS = 5.0
#: The most claims to give back; older ones expire.
MOST_UNSENT = 10_000
#: Seconds after which ingest asks Redis again how much memory it may use.
MEMORY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """The result for messages that are for us; those in neither number were claimed before, or too many of a topic."""

    sent: int = 0
    #: Not enqueued: a queue is full, or Redis failed; then foreign messages are among them.
    dropped: int = 0
    #: The hashes of all that are for us (32 bytes each), also of those that had been claimed before.
    ours: tuple[bytes, ...] = field(default=(), compare=False)
    #: Seconds for which messages wait in the shortest of the queues that are in use; a guess.
    queue_wait: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """What this process sent to a queue."""

    #: Bytes, each counted less the longer ago it was sent.
    recent_bytes: float
    #: Seconds that messages wait there.
    wait: float
    #: Monotonic seconds of all this.
    at: float


@dataclass(slots=True)
class Enqueuer:
    """Puts messages onto the queues."""

    app: Celery
    redis: Redis
    routes: Routes
    settings: IngestSettings
    #: Draws a number of [0, 1) to decide whether a message is dropped because its queue is long.
    draw: Callable[[], float] = random.random
    #: Failures of Redis in a row.
    _failures: int = 0
    #: Monotonic seconds until which ingest leaves Redis alone.
    _left_alone: float = -math.inf
    #: By queue.
    _arrivals: dict[str, _Arrivals] = field(default_factory=dict)
    #: Hashes of messages that were claimed and not sent; the next turn gives their claims back.
    _unsent: deque[bytes] = field(default_factory=lambda: deque(maxlen=MOST_UNSENT))
    #: Bytes that a queue may have by Redis' own limit, and when Redis said so, in monotonic seconds.
    _default_limit: tuple[int, float] = (0, -math.inf)

    def ours(self, entries: Iterable[Entry]) -> list[tuple[Queue, Entry]]:
        """Return the messages that are for us, each with its queue.

        Left out are those whose time lies too far in the future, and those that are shorter than anything sealed: a row
        of the ledger would be many times their size.

        Raises:
            RedisError: Redis did not answer which topics are watched.
        """
        ours, _, _ = self._sort(entries)
        return ours

    def enqueue(self, entries: list[Entry]) -> EnqueueResult:
        """Enqueue the messages that are for us and that were not claimed before; count those that are left out.

        Reconcile brings those that cannot be enqueued. A Redis that hangs holds up one poll for its time-out, or
        that of the broker, and then none for `LEFT_ALONE_SECONDS`.
        """
        if time.monotonic() < self._left_alone:
            metrics.MESSAGES_DROPPED.labels("redis").inc(len(entries))
            return EnqueueResult(dropped=len(entries))
        try:
            self._unclaim()
            ours, ahead, short = self._sort(entries)
            metrics.MESSAGES_AHEAD.inc(ahead)
            metrics.MESSAGES_SHORT.inc(short)
            to_claim = self._shares(ours)
            sizes = backlog.queue_bytes(self.redis, {queue.name for queue, _ in to_claim})
            within_limits = self._within_limits(to_claim, sizes)
            claims_won = self._claim(within_limits)
        except REDIS_ERRORS as error:
            self._note_failure("redis_failed", error, len(entries))
            return EnqueueResult(dropped=len(entries))
        if dropped_count := len(to_claim) - len(within_limits):
            metrics.MESSAGES_DROPPED.labels("queue_full").inc(dropped_count)
        unsent = self._send(claims_won)
        return EnqueueResult(
            sent=len(claims_won) - unsent,
            dropped=dropped_count + unsent,
            ours=tuple(entry.hash for _, entry in ours),
            queue_wait=self._wait(claims_won, sizes),
        )

    def _sort(self, entries: Iterable[Entry]) -> tuple[list[tuple[Queue, Entry]], int, int]:
        """Return what `ours` does, and how many messages are left out for their time, and for their size."""
        messages = self.routes.route(entries, lambda topics: watched.among(self.redis, topics))
        latest = int((time.time() + AHEAD_SECONDS) * 10**9)
        in_time = [(queue, entry) for queue, entry in messages if entry.message.timestamp <= latest]
        ours = [(queue, entry) for queue, entry in in_time if len(entry.message.payload) >= _least_bytes(queue)]
        return ours, len(messages) - len(in_time), len(in_time) - len(ours)

    def _shares(self, messages: list[tuple[Queue, Entry]]) -> list[tuple[Queue, Entry]]:
        """Return the messages without random ones that are too many, on topics where few messages are for us."""
        topics = {entry.message.content_topic for queue, entry in messages if queue is QUERY}
        marked_topics = unopened.marked(self.redis, sorted(topics))
        most = self.settings.topic_messages_per_minute
        limits = [
            Limit(TOPIC_MESSAGES, most, MINUTE, entry.hash, key=entry.message.content_topic)
            for queue, entry in messages
            if queue is QUERY and entry.message.content_topic in marked_topics
        ]
        verdicts = Limiter(self.redis).ask(limits)
        held_back = {limit.message for limit, is_through in zip(limits, verdicts, strict=True) if not is_through}
        return [(queue, entry) for queue, entry in messages if entry.hash not in held_back]

    def _within_limits(
        self, messages: list[tuple[Queue, Entry]], sizes: Mapping[str, int]
    ) -> list[tuple[Queue, Entry]]:
        """Return the messages that fit: a queue with too many bytes drops some, which reconcile brings."""
        limit = self._limit() if sizes else 0
        named = [(queue.name, entry) for queue, entry in messages]
        return [messages[position] for position in backlog.fitting(named, sizes, limit, self.draw)]

    def _wait(self, messages: list[tuple[Queue, Entry]], sizes: Mapping[str, int]) -> float:
        """Return how long messages wait in the shortest of the queues that were used in the last seconds.

        It is a guess: what a queue has, by what comes a second. Of several replicas each knows only what it sends
        itself, and takes the time for longer than it is.
        """
        now = time.monotonic()
        for name, size in sizes.items():
            arrivals = self._arrivals.get(name, _Arrivals(0.0, 0.0, now))
            new_bytes = sum(encoded_bytes(entry) for queue, entry in messages if queue.name == name)
            recent_bytes = arrivals.recent_bytes * math.exp((arrivals.at - now) / RATE_SECONDS) + new_bytes
            self._arrivals[name] = _Arrivals(recent_bytes, RATE_SECONDS * size / max(1.0, recent_bytes), now)
        waits = [each.wait for each in list(self._arrivals.values()) if now - each.at < USED_SECONDS]
        return min(waits, default=0.0)

    def _limit(self) -> int:
        if self.settings.queue_bytes is not None:
            return self.settings.queue_bytes
        limit, asked_at = self._default_limit
        if time.monotonic() - asked_at > MEMORY_SECONDS:
            limit = backlog.default_limit(self.redis)
            self._default_limit = (limit, time.monotonic())
        return limit

    def _claim(self, messages: list[tuple[Queue, Entry]]) -> list[tuple[Queue, Entry]]:
        """Return the messages that neither another replica nor reconcile has enqueued a moment ago."""
        are_ours = claims.claim(self.redis, [entry.hash for _, entry in messages], self.settings.claim_ttl)
        won_messages = []
        for (queue, entry), is_ours in zip(messages, are_ours, strict=True):
            if is_ours:
                won_messages.append((queue, entry))
            else:
                metrics.MESSAGES_REPEATED.labels(queue.name).inc()
        return won_messages

    def _send(self, messages: list[tuple[Queue, Entry]]) -> int:
        """Send the messages of each kind in tasks of a bounded size; return how many messages could not be sent.

        After the first failure it gives up: each try can take seconds.
        """
        now = time.time()
        parts = []
        for name, group in groupby(sorted(messages, key=_queue_name), key=_queue_name):
            entries = [entry for _, entry in group]
            most = self.settings.batch_size
            if len(entries) > BACKLOG_FACTOR * most:
                most *= BACKLOG_FACTOR
            parts += [(QUEUES[name], task) for task in in_tasks(entries, most)]
        for number, (queue, part) in enumerate(parts):
            try:
                send_entries(self.app, queue, part, waits_since=now, retry=False)
            except REDIS_ERRORS as error:
                unsent = [entry for _, task in parts[number:] for entry in task]
                self._note_failure("enqueue_failed", error, len(unsent))
                self._unsent.extend(entry.hash for entry in unsent)
                return len(unsent)
            metrics.MESSAGES_ENQUEUED.labels(queue.name).inc(len(part))
            for entry in part:
                log.debug("message_enqueued", trace_id=entry.trace_id, queue=queue.name)
                tracing.record("enqueued", entry.trace_id, now, time.time(), {"queue": queue.name})
        self._failures = 0
        return 0

    def _note_failure(self, event: str, error: Exception, messages: int) -> None:
        self._failures += 1
        metrics.MESSAGES_DROPPED.labels("redis").inc(messages)
        if is_logged(self._failures):
            log.warning(event, messages=messages, error=type(error).__name__, failures=self._failures)
        # Celery's errors have redis-py's as their cause.
        if isinstance(error, TimedOut) or isinstance(error.__cause__, TimedOut):
            self._left_alone = time.monotonic() + LEFT_ALONE_SECONDS

    def _unclaim(self) -> None:
        """Give back the claims of messages that could not be sent, so that reconcile need not wait for their end.

        Raises:
            RedisError: they stay, for the next time.
        """
        unsent = []
        # Other threads add to them and take of them meanwhile.
        with suppress(IndexError):
            while True:
                unsent.append(self._unsent.popleft())
        if unsent:
            try:
                claims.release(self.redis, unsent)
            except RedisError:
                self._unsent.extend(unsent)
                raise


def _least_bytes(queue: Queue) -> int:
    """Return the least payload of messages that go to a queue: queries are encrypted with a shared key."""
    return payload.LEAST_SYMMETRIC if queue is QUERY else payload.LEAST_ASYMMETRIC


def _queue_name(pair: tuple[Queue, Entry]) -> str:
    return pair[0].name
