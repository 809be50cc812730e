"""Limits that all workers share, counted in Redis. Without Redis nothing is limited, and that is counted."""

from __future__ import annotations

from typing import Final

import structlog
from limits import RateLimitItemPerMinute
from limits.storage import storage_from_string
from limits.strategies import FixedWindowRateLimiter
from redis import RedisError

from wakupush import metrics
from wakupush.connections import RETRY

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Names of what is limited.
FIRST_REGISTRATIONS: Final = "first_registrations"
REPEATS: Final = "repeats"
DEVICE_PUSHES: Final = "device_pushes"
TOPIC_QUERIES: Final = "topic_queries"


class Limiter:
    """Limits a minute.

    Args:
        redis_url: where they are counted.
        timeout: seconds after which Redis counts as down.
    """

    def __init__(self, redis_url: str, timeout: float) -> None:
        storage = storage_from_string(
            redis_url,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=RETRY,  # type: ignore[arg-type]  # handed on to redis-py, as all options are
            key_prefix="wakupush:limit",
        )
        self._limiter = FixedWindowRateLimiter(storage)

    def allows(self, name: str, most: int, key: str = "") -> bool:
        """Count one and say whether it is within the limit.

        Args:
            name: what is limited.
            most: how many a minute; 0 is no limit, and nothing is counted.
            key: tells apart what is limited each by itself. No secret.
        """
        if not most:
            return True
        try:
            return self._limiter.hit(RateLimitItemPerMinute(most), name, key)
        except RedisError as error:
            metrics.LIMITER_FAILED.inc()
            log.warning("limit_not_checked", limit=name, error=type(error).__name__)
            return True
