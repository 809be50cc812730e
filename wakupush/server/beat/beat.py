"""What beat works with. It holds no key and does not know gorush."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from celery import Celery
from psycopg_pool import ConnectionPool
from redis import Redis

from wakupush.postgres.old_code import end_if_outdated
from wakupush.redis.celery_app import celery_app
from wakupush.runtime.connections.postgres import open_pool
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import Settings
from wakupush.server.beat.pace import Pace
from wakupush.server.delivery.breaker import Breaker
from wakupush.server.engine.outbox import Outbox, open_publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The connections of beat, and what says which deliveries may be tried."""

    settings: Settings
    pool: ConnectionPool
    redis: Redis
    #: For sending tasks.
    app: Celery
    outbox: Outbox
    breaker: Breaker
    pace: Pace
    #: Seconds since the epoch.
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic

    def close(self) -> None:
        """Close all connections."""
        self.outbox.publisher.close()
        self.pool.close()
        self.redis.close()


def open_beat(settings: Settings) -> Beat:
    """Open everything. Postgres, Redis and the node may be down meanwhile.

    Raises:
        SettingsError: an address is not valid.
    """
    redis = open_redis(settings.redis)
    pool = open_pool(settings.postgres, end_if_outdated)
    return Beat(
        settings=settings,
        pool=pool,
        redis=redis,
        app=celery_app(settings),
        outbox=Outbox(pool, open_publisher(settings, redis)),
        breaker=Breaker(redis, settings.breaker, settings.delivery.lease),
        pace=Pace(),
    )
