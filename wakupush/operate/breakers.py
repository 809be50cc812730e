"""The circuit breakers of all apps and platforms, for an operator."""

from collections.abc import Iterable
from dataclasses import dataclass

from redis import Redis, RedisError

from wakupush.model.platforms import AppPlatform
from wakupush.redis.breaker import BreakerStore, BreakerView


@dataclass(frozen=True, slots=True)
class BreakerStatus:
    """A breaker as it is in Redis."""

    app_platform: AppPlatform
    view: BreakerView
    #: For how many seconds it stays open.
    open_seconds: float


def statuses(redis: Redis, selection: Iterable[AppPlatform]) -> list[BreakerStatus]:
    """Return the breakers of these apps and platforms.

    Raises:
        RedisError: Redis does not answer.
    """
    store = BreakerStore(redis)
    statuses = []
    for app_platform in selection:
        view = store.read(app_platform)
        if view is None:
            raise RedisError("Redis does not answer")
        statuses.append(BreakerStatus(app_platform, view, store.open_seconds(app_platform)))
    return statuses
