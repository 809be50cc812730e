"""The circuit breakers in Redis, shared by all workers. If Redis fails, their state is unknown; that is counted."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, cast

import structlog
from redis import Redis, RedisError

from wakupush.model.platforms import AppPlatform
from wakupush.runtime import metrics

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

# All times are those of keys that expire: no clock is compared with another. Without `tripped` a breaker is closed;
# with `tripped` and `open` it is open; with `tripped` alone it is probing. `probes` counts the probes under way. `full`
# says that a process had no slot for a post. An `open` of `_BY_OPERATOR` stays until it expires, whatever gets through.

#: Returns 1 if the fault opened the breaker, 2 if it is open again.
_FAULT: Final = """
local tripped, open, probes, faults = unpack(KEYS)
local most, pause, memory, is_probe = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4] == '1'
if redis.call('EXISTS', tripped) == 1 then
    if not is_probe or redis.call('EXISTS', open) == 1 then return 0 end
    redis.call('SET', open, 1, 'PX', pause)
    redis.call('DEL', probes)
    return 2
end
local count = redis.call('INCR', faults)
redis.call('PEXPIRE', faults, memory)
if count < most then return 0 end
redis.call('SET', tripped, 1)
redis.call('SET', open, 1, 'PX', pause)
redis.call('DEL', faults, probes)
return 1
"""
_BY_OPERATOR: Final = "operator"
#: Returns 1 if the breaker was not closed before.
_WORKS: Final = f"""
local tripped, open, probes, faults = unpack(KEYS)
if redis.call('GET', open) == '{_BY_OPERATOR}' then return 0 end
redis.call('DEL', open, probes, faults)
return redis.call('DEL', tripped)
"""
#: Returns how many probes may be posted, -1 if it is closed.
_PROBE: Final = """
local tripped, open, probes = unpack(KEYS)
local requested, most, expire = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if redis.call('EXISTS', tripped) == 0 then return -1 end
if redis.call('EXISTS', open) == 1 then return 0 end
local taken = tonumber(redis.call('GET', probes) or '0')
local granted = math.max(0, math.min(requested, most - taken))
if granted > 0 then
    redis.call('INCRBY', probes, granted)
    if taken == 0 then redis.call('PEXPIRE', probes, expire) end
end
return granted
"""
#: A probe that showed nothing about the route makes room for another.
_OVER: Final = """
local tripped, open, probes = unpack(KEYS)
if tonumber(redis.call('GET', probes) or '0') > 0 then redis.call('DECR', probes) end
return 0
"""


class BreakerState(IntEnum):
    """What a breaker lets through; the numbers are those of its metric."""

    CLOSED = 0
    PROBING = 1
    OPEN = 2


@dataclass(frozen=True, slots=True)
class BreakerView:
    """A breaker as it was read."""

    state: BreakerState = BreakerState.CLOSED
    #: In a row, while it is closed.
    faults: int = 0
    #: Under way, while it is probing.
    probes: int = 0
    #: Whether a process had no slot for a post in the last seconds.
    full: bool = False


class BreakerStore:
    """The keys of all apps and platforms; each change is one script."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._fault, self._works, self._probe, self._over = map(redis.register_script, (_FAULT, _WORKS, _PROBE, _OVER))

    def read(self, app_platform: AppPlatform) -> BreakerView | None:
        """Return the breaker as it is; None if Redis does not answer."""
        try:
            tripped, is_open, probes, faults, full = cast("list[bytes | None]", self._redis.mget(_keys(app_platform)))
        except RedisError as error:
            _note_failure(error)
            return None
        state = BreakerState.CLOSED
        if tripped is not None:
            state = BreakerState.PROBING if is_open is None else BreakerState.OPEN
        return BreakerView(state, int(faults or 0), int(probes or 0), full is not None)

    def fault(self, app_platform: AppPlatform, most: int, *, pause: float, memory: float, probe: bool) -> int | None:
        """Count a fault; return 1 if it opened the breaker, 2 if the breaker is open again.

        Args:
            most: faults in a row that open it.
            pause: seconds for which it is open then.
            memory: seconds after which the count of faults in a row starts over.
        """
        return self._run(app_platform, self._fault, most, _milliseconds(pause), _milliseconds(memory), int(probe))

    def works(self, app_platform: AppPlatform) -> int | None:
        """Close the breaker; return 1 if it was not closed before."""
        return self._run(app_platform, self._works)

    def probe(self, app_platform: AppPlatform, number: int, *, most: int, seconds: float) -> int | None:
        """Begin probes; return how many of this number may be posted, -1 if it is closed.

        Args:
            most: probes under way at once.
            seconds: after which they count as over even if no process reports it.
        """
        return self._run(app_platform, self._probe, number, most, _milliseconds(seconds))

    def over(self, app_platform: AppPlatform) -> None:
        """End a probe that showed nothing about the route."""
        self._run(app_platform, self._over)

    def open_for(self, app_platform: AppPlatform, seconds: float) -> None:
        """Open it for some seconds, in which no post that gets through closes it.

        Raises:
            RedisError: Redis does not answer.
        """
        tripped, is_open, probes, faults, _ = _keys(app_platform)
        with self._redis.pipeline() as pipeline:
            pipeline.set(tripped, 1)
            pipeline.set(is_open, _BY_OPERATOR, px=_milliseconds(seconds))
            pipeline.delete(probes, faults)
            pipeline.execute()

    def close(self, app_platform: AppPlatform) -> bool:
        """Close it whatever it was; return whether it was not closed.

        Raises:
            RedisError: Redis does not answer.
        """
        tripped, is_open, probes, faults, _ = _keys(app_platform)
        with self._redis.pipeline() as pipeline:
            pipeline.delete(tripped)
            pipeline.delete(is_open, probes, faults)
            was_tripped, _ = pipeline.execute()
        return bool(was_tripped)

    def open_seconds(self, app_platform: AppPlatform) -> float:
        """Return for how many seconds it stays open; 0 if it is not.

        Raises:
            RedisError: Redis does not answer.
        """
        return max(0.0, self._redis.pttl(_keys(app_platform)[1]) / 1000)

    def full(self, app_platform: AppPlatform, *, seconds: float) -> None:
        """Remember for some seconds that a process has no slot left for a post."""
        try:
            self._redis.set(_keys(app_platform)[-1], 1, px=_milliseconds(seconds))
        except RedisError as error:
            _note_failure(error)

    def _run(self, app_platform: AppPlatform, script: Callable[..., object], *arguments: int) -> int | None:
        try:
            return cast("int", script(keys=_keys(app_platform), args=arguments))
        except RedisError as error:
            _note_failure(error)
            return None


def _keys(app_platform: AppPlatform) -> list[str]:
    # Without an app, the keys are those of servers that know none.
    prefix = ":".join(filter(None, ("wakupush:breaker", *app_platform.labels)))
    return [f"{prefix}:{name}" for name in ("tripped", "open", "probes", "faults", "full")]


def _milliseconds(seconds: float) -> int:
    return max(1, int(1000 * seconds))


def _note_failure(error: RedisError) -> None:
    metrics.BREAKER_FAILED.inc()
    log.warning("breaker_not_checked", error=type(error).__name__)
