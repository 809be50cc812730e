"""What a process works with; opened after the fork."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from wakupush.connections import open_redis
from wakupush.gorush.batches import Caution
from wakupush.gorush.client import Gorush
from wakupush.queues import celery_app
from wakupush.server.breaker import Breaker
from wakupush.server.identity import Identity, load_identity
from wakupush.server.limiter import Limiter
from wakupush.server.posts import Posts
from wakupush.server.task_events import TaskEvents
from wakupush.state.pool import open_pool
from wakupush.waku.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery
    from psycopg_pool import ConnectionPool
    from redis import Redis

    from wakupush.settings import Settings

#: Answers that a process publishes at the same time at most.
PUBLISH_CONNECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the schedule needs: it holds no key and does not know gorush."""

    settings: Settings
    pool: ConnectionPool
    redis: Redis
    breaker: Breaker
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
            SettingsError: an address is none.
        """
        return cls(**_resources(settings))

    def close(self) -> None:
        """Close all connections."""
        self.publisher.close()
        self.pool.close()
        self.redis.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Resources):
    """What a worker needs."""

    identity: Identity
    limiter: Limiter
    gorush: Gorush
    #: The posts to gorush that are open, some of them longer than the task that made them.
    posts: Posts
    task_events: TaskEvents
    caution: Caution = field(default_factory=Caution)

    @classmethod
    def open(cls, settings: Settings, node: str | None = None) -> Self:
        """Open everything. Postgres, Redis, the node and gorush may be down meanwhile.

        Args:
            settings: with a private key.
            node: the name of the worker in Celery.

        Raises:
            NoIdentityError: there is no private key.
            SettingsError: an address is none.
        """
        resources = _resources(settings)
        return cls(
            identity=load_identity(settings),
            limiter=Limiter(settings.redis.url.get_secret_value(), settings.redis.timeout),
            gorush=Gorush(
                settings.gorush.url,
                connect_timeout=settings.gorush.connect_timeout,
                timeout=settings.gorush.timeout,
                connections=settings.gorush.concurrency,
            ),
            posts=Posts(settings.gorush.concurrency),
            task_events=TaskEvents(resources["app"], node, settings.delivery.max_attempts),
            **resources,
        )

    def close(self) -> None:
        """Wait for open posts, then close all connections."""
        self.posts.close()
        self.task_events.close()
        self.gorush.close()
        Resources.close(self)


def _resources(settings: Settings) -> dict[str, Any]:
    redis = open_redis(settings.redis)
    return {
        "settings": settings,
        "pool": open_pool(settings.postgres),
        "redis": redis,
        # A post that outlives its lease is taken for one whose process died.
        "breaker": Breaker(redis, settings.breaker, settings.delivery.lease),
        "publisher": Publisher(
            settings.waku.url, timeout=settings.waku.publish_timeout, connections=PUBLISH_CONNECTIONS
        ),
        "app": celery_app(settings),
    }
