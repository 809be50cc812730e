"""Limits that all workers share, counted in Redis. If Redis fails, nothing is limited; that is counted."""

import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, cast

import structlog
from redis import Redis, RedisError

from wakupush.model.limits import Limit
from wakupush.runtime import metrics

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Counts what is asked, and returns for each limit 1 if it lets it through, 0 if not, -1 if it was not counted.
#:
#: The chance to be let through is capacity divided by demand. It is above 0, however much others ask for, and 1 while
#: all that is asked for fits. The demand is that of this window, and of the part of the last window that is within the
#: time of the limit. The capacity is shared twice, by cost and by heads, and the larger share counts: a client that
#: asks for much takes nothing from those that ask for little. So on average at most twice the limit is let through,
#: and what its floor adds, which counts by heads alone.
#: Once, while a flood begins, it is more: by the logarithm of the factor by which the flood exceeds the limit.
#:
#: KEYS: for each limit the counters of this window and of the last one. ARGV: JSON; for each limit its capacity, its
#: cost, the seconds until its counters expire, the share of the last window that counts, a random number of [0, 1), the
#: place of the limit that it comes after, 0 for none, and its floor.
_ASK: Final = """
local verdicts = {}
for place, limit in ipairs(cjson.decode(ARGV[1])) do
    local most, cost, seconds, share, draw, after, floor = unpack(limit)
    verdicts[place] = -1
    if after == 0 or verdicts[after] == 1 then
        local now, before = KEYS[2 * place - 1], redis.call("HMGET", KEYS[2 * place], "number", "cost")
        local number = redis.call("HINCRBY", now, "number", 1)
        if number == 1 then redis.call("EXPIRE", now, seconds) end
        local heads = number + share * tonumber(before[1] or 0)
        local demand = redis.call("HINCRBY", now, "cost", cost) + share * tonumber(before[2] or 0)
        verdicts[place] = draw < math.max(most / demand, most / (heads * cost), floor / heads) and 1 or 0
    end
end
return verdicts
"""


#: A message (hash of its envelope, 32 bytes), the counter that it was counted in, and its cost.
Counted = tuple[bytes, str, int]

#: Takes back what was counted. KEYS: the counters. ARGV: JSON; the cost of each.
_GIVE_BACK: Final = """
for place, cost in ipairs(cjson.decode(ARGV[1])) do
    if redis.call("EXISTS", KEYS[place]) == 1 then
        redis.call("HINCRBY", KEYS[place], "number", -1)
        redis.call("HINCRBY", KEYS[place], "cost", -cost)
    end
end
"""


class Limiter:
    """Limits within a time: above them chance decides, never the order of arrival.

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

    def ask(self, limits: Sequence[Limit], counted: list[Counted] | None = None) -> list[bool]:
        """Count each of these, with one round trip, and return for each whether it lets through.

        Args:
            limits: the one that another comes after stands before it.
            counted: gets what was counted, for `give_back`.
        """
        if not limits:
            return []
        now = self._now()
        places = {limit.id: place for place, limit in enumerate(limits, 1)}
        keys: list[str] = []
        values: list[tuple[int, int, int, float, float, int, int]] = []
        for limit in limits:
            window, elapsed = divmod(now, limit.seconds)
            name = f"wakupush:limit:{limit.name}:{limit.key}"
            keys += (f"{name}:{int(window)}", f"{name}:{int(window) - 1}")
            share, after = 1 - elapsed / limit.seconds, places[limit.after.id] if limit.after else 0
            values.append((limit.most, limit.cost, 2 * limit.seconds, share, self._draw(), after, limit.floor))
        try:
            # Not EVALSHA: after a failover the new primary would not know the script's hash.
            answers = cast("list[int]", self._redis.eval(_ASK, len(keys), *keys, json.dumps(values)))
        except RedisError as error:
            metrics.LIMITER_FAILED.inc(len(limits))
            for name in sorted({limit.name for limit in limits}):
                log.warning("limit_not_checked", limit=name, error=type(error).__name__)
            return [True] * len(limits)
        for place, (limit, answer) in enumerate(zip(limits, answers, strict=True)):
            if answer >= 0:
                if counted is not None:
                    counted.append((limit.message, keys[2 * place], limit.cost))
                metrics.LIMITED.labels(limit.name, "let_through" if answer else "held_back").inc()
        return [answer == 1 for answer in answers]

    def give_back(self, counted: Sequence[Counted]) -> None:
        """Take back what `ask` counted, because nothing came of it. If Redis fails, it stays counted."""
        if counted:
            costs = json.dumps([cost for _, _, cost in counted])
            with suppress(RedisError):
                self._redis.eval(_GIVE_BACK, len(counted), *(key for _, key, _ in counted), costs)

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()
