"""What the schedule works with."""

from dataclasses import dataclass

from wakupush.redis.celery_app import celery_app
from wakupush.runtime.connections.postgres import open_pool
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import Settings
from wakupush.server.delivery.breaker import Breaker
from wakupush.server.outdated import end_if_outdated
from wakupush.server.resources import Resources, open_publisher


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat(Resources):
    """Resources, with what says which deliveries may be tried. They hold no key and do not know gorush."""

    breaker: Breaker


def open_beat(settings: Settings) -> Beat:
    """Open everything. Postgres, Redis and the node may be down meanwhile.

    Raises:
        SettingsError: an address is not valid.
    """
    redis = open_redis(settings.redis)
    return Beat(
        settings=settings,
        pool=open_pool(settings.postgres, end_if_outdated),
        redis=redis,
        publisher=open_publisher(settings, redis),
        app=celery_app(settings),
        breaker=Breaker(redis, settings.breaker, settings.delivery.lease),
    )
