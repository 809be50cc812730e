"""What a process works with; opened after the fork."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

from wakupush.connections import open_redis
from wakupush.gorush.batches import Caution
from wakupush.gorush.client import Gorush
from wakupush.queues import celery_app
from wakupush.server.identity import Identity, load_identity
from wakupush.server.limiter import Limiter
from wakupush.server.posts import Posts
from wakupush.settings import SettingsError
from wakupush.waku.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery
    from redis import Redis

    from wakupush.settings import PostgresSettings, Settings

#: Answers that a process publishes at the same time at most.
PUBLISH_CONNECTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What the schedule needs: it holds no key and does not know gorush."""

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
    caution: Caution = field(default_factory=Caution)

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Open everything. Postgres, Redis, the node and gorush may be down meanwhile.

        Raises:
            NoIdentityError: there is no private key.
            SettingsError: an address is none.
        """
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
            **_resources(settings),
        )

    def close(self) -> None:
        """Wait for open posts, then close all connections."""
        self.posts.close()
        self.gorush.close()
        Resources.close(self)


def check_dsn(settings: PostgresSettings) -> str:
    """Return the connection string.

    Raises:
        SettingsError: it is none; libpq's own words would repeat it, password and all.
    """
    dsn = settings.dsn.get_secret_value()
    try:
        conninfo_to_dict(dsn)
    except ProgrammingError:
        raise SettingsError("WAKUPUSH_POSTGRES__DSN is no connection string of libpq") from None
    return dsn


def _resources(settings: Settings) -> dict[str, Any]:
    return {
        "settings": settings,
        "pool": open_pool(settings.postgres),
        "redis": open_redis(settings.redis),
        "publisher": Publisher(
            settings.waku.url, timeout=settings.waku.publish_timeout, connections=PUBLISH_CONNECTIONS
        ),
        "app": celery_app(settings),
    }


def open_pool(settings: PostgresSettings) -> ConnectionPool:
    """Return an open pool of Postgres connections; it connects when it can."""
    return ConnectionPool(
        check_dsn(settings),
        min_size=1,
        max_size=settings.pool_size,
        timeout=settings.timeout,
        check=ConnectionPool.check_connection,
        kwargs={
            "application_name": "wakupush",
            "connect_timeout": max(2, int(settings.timeout)),
            "tcp_user_timeout": int(1000 * settings.statement_timeout),
            # A Postgres that is locked or stuck must look like one that is down, before the task's time is over.
            "options": f"-c statement_timeout={1000 * settings.statement_timeout:.0f}",
        },
        open=True,
    )
