"""The circuit breakers of all apps and platforms, for an operator."""

from collections.abc import Iterable
from dataclasses import dataclass

from redis import Redis, RedisError

from wakupush.model.platforms import AppPlatform
from wakupush.redis.breaker import BreakerState, BreakerStore


@dataclass(frozen=True, slots=True)
class BreakerStatus:
    """A breaker as it is in Redis."""

    app_platform: AppPlatform
    state: BreakerState
    #: For how many seconds it stays open.
    open_seconds: float
    #: Faults in a row while it is closed, and probes under way while it is probing.
    faults: int
    probes: int
    #: Whether a process had no slot for a post in the last seconds.
    is_full: bool


def statuses(redis: Redis, selection: Iterable[AppPlatform]) -> list[BreakerStatus]:
    """Return the breakers of these apps and platforms.

    Raises:
        RedisError: Redis does not answer.
    """
    store = BreakerStore(redis)
    return [_status(store, app_platform) for app_platform in selection]


def _status(store: BreakerStore, app_platform: AppPlatform) -> BreakerStatus:
    view = store.read(app_platform)
    if view is None:
        raise RedisError("Redis does not answer")
    return BreakerStatus(
        app_platform, view.state, store.open_seconds(app_platform), view.faults, view.probes, view.full
    )
