"""The Waku nodes that are left out for publishing, as ingest, which hears them, wrote them into Redis."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final

import structlog
from redis import Redis, RedisError

from wakupush.redis import left_out

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds for which what was read holds.
HOLDS_SECONDS: Final = 2.0


class LeftOut:
    """Reads now and then which nodes are left out. While Redis fails none is."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._names: frozenset[str] = frozenset()
        self._holds_until = 0.0

    def __call__(self) -> Collection[str]:
        """Return the names of the nodes."""
        if time.monotonic() >= self._holds_until:
            self._holds_until = time.monotonic() + HOLDS_SECONDS
            try:
                self._names = frozenset(left_out.read(self._redis))
            except RedisError as error:
                self._names = frozenset()
                log.info("left_out_not_read", error=type(error).__name__)
        return self._names
