"""What a worker process works with; opened after the fork."""

from __future__ import annotations

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from psycopg_pool import ConnectionPool
from redis import Redis

from wakupush.gorush.batches import Caution
from wakupush.gorush.client import Gorush
from wakupush.queues import celery_app
from wakupush.server.identity import Identity, load_identity
from wakupush.server.limiter import Limiter
from wakupush.server.posts import Posts
from wakupush.waku.node import WakuNode

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from wakupush.settings import Settings

#: Answers that a process publishes at the same time at most.
PUBLISHERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Connections, settings and keys of one process."""

    settings: Settings
    identity: Identity
    pool: ConnectionPool
    redis: Redis
    limiter: Limiter
    node: WakuNode
    gorush: Gorush
    #: The posts to gorush that are open, some of them longer than the task that made them.
    posts: Posts
    caution: Caution = field(default_factory=Caution)
    #: Threads that publish answers.
    publishers: ThreadPoolExecutor
    #: For passing messages on to other queues.
    app: Celery
    #: The name of this process in events.
    worker: str
    #: Seconds since the epoch.
    now: Callable[[], float] = time.time

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Open everything that a worker needs. Postgres, Redis, the node and gorush may be down meanwhile.

        Raises:
            NoIdentityError: there is no private key.
        """
        return cls(
            settings=settings,
            identity=load_identity(settings),
            pool=open_pool(settings),
            redis=open_redis(settings),
            limiter=Limiter(settings.redis.url.get_secret_value(), settings.redis.timeout),
            node=WakuNode(settings.waku.url, timeout=settings.waku.timeout, connections=PUBLISHERS),
            gorush=Gorush(
                settings.gorush.url,
                connect_timeout=settings.gorush.connect_timeout,
                timeout=settings.gorush.timeout,
                connections=settings.gorush.concurrency,
            ),
            posts=Posts(settings.gorush.concurrency),
            publishers=ThreadPoolExecutor(PUBLISHERS, "publish"),
            app=celery_app(settings),
            worker=f"{socket.gethostname()}:{os.getpid()}",
        )

    def close(self) -> None:
        """Wait for open posts, then close all connections."""
        self.posts.close()
        self.publishers.shutdown()
        self.node.close()
        self.gorush.close()
        self.pool.close()
        self.redis.close()


def open_pool(settings: Settings) -> ConnectionPool:
    """Return an open pool of Postgres connections; it connects when it can."""
    return ConnectionPool(
        settings.postgres.dsn.get_secret_value(),
        min_size=1,
        max_size=settings.postgres.pool_size,
        timeout=settings.postgres.timeout,
        check=ConnectionPool.check_connection,
        kwargs={"application_name": "wakupush"},
        open=True,
    )


def open_redis(settings: Settings) -> Redis:
    """Return a Redis client."""
    return Redis.from_url(
        settings.redis.url.get_secret_value(),
        socket_timeout=settings.redis.timeout,
        socket_connect_timeout=settings.redis.timeout,
    )
