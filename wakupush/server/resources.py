"""What every part of the server works with."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from celery import Celery
from psycopg_pool import ConnectionPool
from redis import Redis

from wakupush.redis.celery_app import celery_app
from wakupush.runtime.connections.postgres import open_pool
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import Settings
from wakupush.server.nodes import LeftOut
from wakupush.server.outdated import end_if_outdated
from wakupush.waku.publisher import PUBLISH_SECONDS, Publisher

#: Answers that a process publishes at the same time at most.
PUBLISH_CONNECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """The connections of a process, opened after the fork. They hold no key."""

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

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Open everything. Postgres, Redis, the node and gorush may be down meanwhile.

        Raises:
            SettingsError: an address is not valid.
        """
        return cls(**connected(settings))

    def close(self) -> None:
        """Close all connections."""
        self.publisher.close()
        self.pool.close()
        self.redis.close()


def connected(settings: Settings) -> dict[str, Any]:
    """Return the fields of `Resources`, by name."""
    redis = open_redis(settings.redis)
    return {
        "settings": settings,
        "pool": open_pool(settings.postgres, end_if_outdated),
        "redis": redis,
        "publisher": Publisher(
            settings.waku.nodes,
            timeout=PUBLISH_SECONDS,
            connections=PUBLISH_CONNECTIONS,
            left_out=LeftOut(redis),
        ),
        "app": celery_app(settings),
    }
