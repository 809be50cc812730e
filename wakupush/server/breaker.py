"""A circuit breaker for each platform, shared by all workers through Redis: a dead route is left alone.

It is *closed* while all is well. `BreakerSettings.faults` posts in a row that found the route broken, or slots that all
hang, *open* it: no post is begun for `BreakerSettings.pause`. Then it is *probing*: a few deliveries are posted. The
first that gets through closes it; one that finds the route broken opens it again. Without Redis everything is let
through, and that is counted. See docs/adr/0015-own-circuit-breaker.md.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, cast

import structlog
from redis import RedisError

from wakupush import metrics
from wakupush.failures import Route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from redis import Redis

    from wakupush.failures import Failure
    from wakupush.protocol.registration import TokenType
    from wakupush.settings import BreakerSettings

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds for which a process goes by what it read last.
CACHE_SECONDS: Final = 1.0
#: Seconds after the last fault after which a row of them is forgotten.
MEMORY_SECONDS: Final = 60.0

# All times are those of keys that expire: no clock is compared with another. Without `tripped` it is closed; with
# `tripped` and `open` it is open; with `tripped` alone it is probing. `probes` counts the probes under way.

#: Returns 1 if that opened it, 2 if it is open again.
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
#: Returns 1 if that closed it.
_WORKS: Final = """
local tripped, open, probes, faults = unpack(KEYS)
redis.call('DEL', open, probes, faults)
return redis.call('DEL', tripped)
"""
#: Returns how many probes may be posted, -1 if it is closed.
_PROBE: Final = """
local tripped, open, probes = unpack(KEYS)
local wanted, most, expire = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if redis.call('EXISTS', tripped) == 0 then return -1 end
if redis.call('EXISTS', open) == 1 then return 0 end
local taken = tonumber(redis.call('GET', probes) or '0')
local given = math.max(0, math.min(wanted, most - taken))
if given > 0 then
    redis.call('INCRBY', probes, given)
    if taken == 0 then redis.call('PEXPIRE', probes, expire) end
end
return given
"""
#: A probe that told nothing about the route makes room for another.
_OVER: Final = """
local tripped, open, probes = unpack(KEYS)
if tonumber(redis.call('GET', probes) or '0') > 0 then redis.call('DECR', probes) end
return 0
"""


class State(IntEnum):
    """What a breaker lets through; the numbers are those of its metric."""

    CLOSED = 0
    PROBING = 1
    OPEN = 2


@dataclass(frozen=True, slots=True)
class _View:
    """A breaker as it was read."""

    state: State = State.CLOSED
    #: In a row, while it is closed.
    faults: int = 0
    #: Under way.
    probes: int = 0


class Breaker:
    """The breakers of all platforms, as one process sees them: what it read is up to a second old.

    Args:
        redis: what all workers share.
        settings: when it opens and for how long.
        probe_seconds: after that a probe is over even if nobody says so, because its process died; longer than a post.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        redis: Redis,
        settings: BreakerSettings,
        probe_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis = redis
        self._settings = settings
        self._probe_seconds = probe_seconds
        self._clock = clock
        self._views: dict[TokenType, tuple[float, _View]] = {}
        self._fault, self._works, self._probe, self._over = map(redis.register_script, (_FAULT, _WORKS, _PROBE, _OVER))

    def is_closed(self, platform: TokenType) -> bool:
        """Say whether posts may be begun without asking for a probe."""
        return self._view(platform).state is State.CLOSED

    def claimable(self, platform: TokenType, most: int) -> int:
        """Return how many due deliveries, at most `most`, may be enqueued; this takes nothing.

        The schedule asks without end, so it shows the state: in a worker that has nothing to do it would grow old.
        """
        view = self._view(platform)
        metrics.BREAKER_STATE.labels(platform.platform).set(view.state)
        if view.state is State.CLOSED:
            return most
        return min(most, self._settings.probes - view.probes) if view.state is State.PROBING else 0

    def take_probes(self, platform: TokenType, wanted: int) -> int | None:
        """Return how many deliveries, at most `wanted`, may be posted as probes; None if all may, and none is one."""
        view = self._view(platform)
        if view.state is not State.PROBING:
            return None if view.state is State.CLOSED else 0
        given = self._run(platform, self._probe, wanted, self._settings.probes, _milliseconds(self._probe_seconds))
        return None if given is None or given < 0 else given

    def note(self, platform: TokenType, outcomes: Iterable[Failure | None], *, probe: bool) -> None:
        """Take note of what one post brought.

        One outcome that says the route works outweighs all others. Without news, which is the rule, this asks nobody.
        """
        told = {Route.WORKS if outcome is None else outcome.route for outcome in outcomes}
        if Route.WORKS in told:
            view = self._view(platform)
            if (view.state is not State.CLOSED or view.faults) and self._run(platform, self._works):
                log.info("breaker_closed", platform=platform.platform)
        elif Route.BROKEN in told:
            self._broken(platform, self._settings.faults, reason="faults", probe=probe)
        elif probe:
            self._run(platform, self._over)

    def open(self, platform: TokenType) -> None:
        """Open a breaker at once, because all slots for posts of this process hang."""
        self._broken(platform, 1, reason="slots")

    def _broken(self, platform: TokenType, most: int, *, reason: str, probe: bool = False) -> None:
        pause, memory = _milliseconds(self._settings.pause), _milliseconds(MEMORY_SECONDS)
        opened = self._run(platform, self._fault, most, pause, memory, int(probe))
        if opened == 1:
            metrics.BREAKER_OPENED.labels(platform.platform).inc()
            log.error("breaker_opened", platform=platform.platform, reason=reason, seconds=self._settings.pause)
        elif opened:
            log.warning("breaker_stays_open", platform=platform.platform, seconds=self._settings.pause)

    def _view(self, platform: TokenType) -> _View:
        read, view = self._views.get(platform, (None, _View()))
        now = self._clock()
        if read is None or now - read >= CACHE_SECONDS:
            view = self._read(platform)
            self._views[platform] = now, view
        return view

    def _read(self, platform: TokenType) -> _View:
        try:
            tripped, is_open, probes, faults = cast("list[bytes | None]", self._redis.mget(_keys(platform)))
        except RedisError as error:
            _failed(error)
            return _View()
        state = State.CLOSED if tripped is None else State.PROBING if is_open is None else State.OPEN
        return _View(state, int(faults or 0), int(probes or 0))

    def _run(self, platform: TokenType, script: Callable[..., object], *arguments: int) -> int | None:
        """Return what a script returns, None if Redis fails; what was read before is out of date then."""
        self._views.pop(platform, None)
        try:
            return cast("int", script(keys=_keys(platform), args=arguments))
        except RedisError as error:
            _failed(error)
            return None


def _keys(platform: TokenType) -> list[str]:
    return [f"wakupush:breaker:{platform.platform}:{name}" for name in ("tripped", "open", "probes", "faults")]


def _milliseconds(seconds: float) -> int:
    return max(1, int(1000 * seconds))


def _failed(error: RedisError) -> None:
    metrics.BREAKER_FAILED.inc()
    log.warning("breaker_not_checked", error=type(error).__name__)
