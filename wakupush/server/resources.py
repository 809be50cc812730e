"""What every part of the server works with."""

import os
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

import structlog
from celery import Celery
from psycopg_pool import ConnectionPool
from redis import Redis, RedisError

from wakupush.redis import left_out
from wakupush.runtime.settings import Settings
from wakupush.waku.publisher import PUBLISH_SECONDS, Publisher

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Answers that a process publishes at the same time at most.
PUBLISH_CONNECTIONS: Final = 16
#: Seconds for which the names of excluded nodes hold.
EXCLUDED_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a worker and the schedule have alike: connections, opened after the fork. They hold no key."""

    settings: Settings
    pool: ConnectionPool
    redis: Redis
    publisher: Publisher
    #: For sending tasks.
    app: Celery
    #: The name of this process in events.
    worker: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")
    #: Seconds since the epoch.
    now: Callable[[], float] = time.time

    def close(self) -> None:
        """Close all connections."""
        self.publisher.close()
        self.pool.close()
        self.redis.close()


class ExcludedNodes:
    """The nodes on which nothing is published, as ingest, which hears them, wrote them into Redis."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._names: Collection[str] = ()
        self._expires = 0.0

    def names(self) -> Collection[str]:
        """Return the names of the nodes, read within the last `EXCLUDED_SECONDS`; none while Redis fails."""
        if time.monotonic() >= self._expires:
            self._expires = time.monotonic() + EXCLUDED_SECONDS
            try:
                self._names = left_out.read(self._redis)
            except RedisError as error:
                self._names = ()
                log.info("left_out_not_read", error=type(error).__name__)
        return self._names


def open_publisher(settings: Settings, redis: Redis) -> Publisher:
    """Open the way to the nodes, which may be down meanwhile."""
    return Publisher(
        settings.waku.nodes,
        timeout=PUBLISH_SECONDS,
        connections=PUBLISH_CONNECTIONS,
        left_out=ExcludedNodes(redis).names,
    )
