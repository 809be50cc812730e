"""Limits that all workers share, counted in Redis. Without Redis nothing is limited, and that is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import structlog
from limits import RateLimitItemPerMinute
from limits.storage import RedisStorage
from redis import RedisError

from wakupush.runtime import metrics
from wakupush.runtime.connections.redis import RETRY

if TYPE_CHECKING:
    from collections.abc import Collection

    from redis import Redis

    from wakupush.model.limits import Limit

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


class Limiter:
    """Limits a minute, in fixed windows.

    Args:
        redis_url: where they are counted.
        timeout: seconds after which Redis counts as down.
    """

    def __init__(self, redis_url: str, timeout: float) -> None:
        self._storage = RedisStorage(
            redis_url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=RETRY,  # type: ignore[arg-type]  # handed on to redis-py, as all options are
            key_prefix="wakupush:limit",
        )

    def ask(self, wanted: Collection[Limit]) -> dict[Limit, bool]:
        """Count one of each of these, with one round trip, and say which are within their limits."""
        redis = cast("Redis", self._storage.get_connection())
        script = cast("str", self._storage.lua_incr_expire.script)
        items = {limit: RateLimitItemPerMinute(limit.most) for limit in wanted}
        try:
            with redis.pipeline(transaction=False) as pipeline:
                for limit, item in items.items():
                    # The window and its keys are the library's own: it counts one at a time.
                    key = self._storage.prefixed_key(item.key_for(limit.name, limit.key))
                    # Not by its hash, which another primary would not know after a failover.
                    pipeline.eval(script, 1, key, item.get_expiry(), 1)
                counts = cast("list[int]", pipeline.execute())
        except RedisError as error:
            metrics.LIMITER_FAILED.inc(len(items))
            for name in sorted({limit.name for limit in items}):
                log.warning("limit_not_checked", limit=name, error=type(error).__name__)
            return dict.fromkeys(wanted, True)
        return {limit: int(count) <= limit.most for limit, count in zip(items, counts, strict=True)}
