"""What every part of the server works with."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from celery import Celery
from psycopg_pool import ConnectionPool
from redis import Redis

from wakupush.runtime.settings import Settings
from wakupush.server.nodes import LeftOut
from wakupush.waku.publisher import PUBLISH_SECONDS, Publisher

#: Answers that a process publishes at the same time at most.
PUBLISH_CONNECTIONS = 16


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


def open_publisher(settings: Settings, redis: Redis) -> Publisher:
    """Open the way to the nodes, which may be down meanwhile."""
    return Publisher(
        settings.waku.nodes, timeout=PUBLISH_SECONDS, connections=PUBLISH_CONNECTIONS, left_out=LeftOut(redis)
    )
