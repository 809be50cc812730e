"""The queue `rest`: messages for devices that no push reached yet wait there, apart from all others.

A stranger can make up keys, topics and messages, but no device that Apple or Google delivered to. So what may be his
waits for a pool of low priority, and does not hold up messages for such devices.
"""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from celery import Celery
from redis import Redis, RedisError

from wakupush.model.entries import Entry
from wakupush.model.queues import REST, REST_WORKER, Queue
from wakupush.redis import backlog, presence
from wakupush.runtime import metrics
from wakupush.server.engine.pass_on import pass_on

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Bytes that the queue may have in Redis: about 6,000 messages, which one process handles in a quarter of a minute.
MOST_BYTES: Final = 16 * 2**20
#: Seconds between looks for a worker of the pool.
LOOK_SECONDS: Final = 5.0


@dataclass(slots=True)
class RestQueue:
    """Sends messages to the pool `rest`, as long as it runs."""

    redis: Redis
    app: Celery
    _is_served: bool = False
    _looked_at: float = -math.inf

    def is_served(self) -> bool:
        """Return whether a worker of the pool runs, and is ready. Without one every pool handles all that it gets."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_SECONDS:
            self._looked_at = now
            try:
                self._is_served = presence.is_ready(self.redis, REST_WORKER)
            except RedisError as error:
                self._is_served = False
                log.debug("presence_not_read", error=type(error).__name__)
        return self._is_served

    def send(self, messages: Sequence[tuple[Queue, Entry]]) -> None:
        """Send messages in the tasks of their kinds; a full queue drops some, which reconcile brings.

        Raises:
            OperationalError: the broker failed; the messages come back with their task.
            RedisError: likewise.
        """
        if not messages:
            return
        sizes = backlog.queue_bytes(self.redis, [REST])
        positions = backlog.fitting([(REST, entry) for _, entry in messages], sizes, MOST_BYTES, random.random)
        for position in positions:
            metrics.MESSAGES_TO_REST.labels(messages[position][0].name).inc()
        if dropped := len(messages) - len(positions):
            metrics.MESSAGES_DROPPED.labels("rest_full").inc(dropped)
            log.warning("rest_full", messages=dropped)
        pass_on(self.app, [messages[position] for position in positions], is_rest=True)
