"""Limits that all workers share, counted in Redis. If Redis fails, nothing is limited; that is counted."""

import random
import time
from collections.abc import Callable, Collection
from typing import Final, cast

import structlog
from redis import Redis, RedisError

from wakupush.model.limits import Demand, Limit, chance, demand
from wakupush.runtime import metrics

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: KEYS: for each limit the counters of this window and of the last one. ARGV: for each its cost, and for how long it
#: counts.
_COUNT: Final = """
local told = {}
for each = 1, #KEYS, 2 do
    local number = redis.call("HINCRBY", KEYS[each], "number", 1)
    local cost = redis.call("HINCRBY", KEYS[each], "cost", ARGV[each])
    if number == 1 then redis.call("EXPIRE", KEYS[each], ARGV[each + 1]) end
    local before = redis.call("HMGET", KEYS[each + 1], "number", "cost")
    told[#told + 1] = {number, cost, tonumber(before[1] or 0), tonumber(before[2] or 0)}
end
return told
"""


class Limiter:
    """Limits within a time: above them chance decides, never who came first.

    Args:
        draw: returns a number of [0, 1) by chance.
        now: returns seconds since the epoch.
    """

    def __init__(
        self, redis: Redis, *, draw: Callable[[], float] = random.random, now: Callable[[], float] = time.time
    ) -> None:
        self._redis = redis
        self._draw = draw
        self._now = now

    def ask(self, limits: Collection[Limit]) -> dict[Limit, bool]:
        """Count each of these, with one round trip, and say which are let through."""
        now = self._now()
        keys: list[str] = []
        values: list[int] = []
        for limit in limits:
            window = int(now // limit.seconds)
            name = f"wakupush:limit:{limit.name}:{limit.key}"
            keys += (f"{name}:{window}", f"{name}:{window - 1}")
            values += (limit.cost, 2 * limit.seconds)
        try:
            # Not EVALSHA: after a failover the new primary would not know the script's hash.
            answers = cast("list[list[int]]", self._redis.eval(_COUNT, len(keys), *keys, *values))
        except RedisError as error:
            metrics.LIMITER_FAILED.inc(len(limits))
            for name in sorted({limit.name for limit in limits}):
                log.warning("limit_not_checked", limit=name, error=type(error).__name__)
            return dict.fromkeys(limits, True)
        return {
            limit: self._lets_through(limit, *counts, now=now) for limit, counts in zip(limits, answers, strict=True)
        }

    def _lets_through(
        self, limit: Limit, number: int, cost: int, number_before: int, cost_before: int, *, now: float
    ) -> bool:
        elapsed = now % limit.seconds / limit.seconds
        total = demand(Demand(number, cost), Demand(number_before, cost_before), elapsed)
        through = self._draw() < chance(limit, total)
        metrics.LIMITED.labels(limit.name, "let_through" if through else "held_back").inc()
        return through
