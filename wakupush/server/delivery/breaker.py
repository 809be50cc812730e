"""A circuit breaker for each app and platform, shared by all workers: a dead route is left alone.

It is *closed* while all is well. `BreakerSettings.faults` posts in a row that found the route broken, or seconds in
which all slots of a process hung, *open* it: no post is begun for `BreakerSettings.pause`. Then it is *probing*: a few
deliveries are posted. The first that gets through closes it; one that finds the route broken opens it again. Without
Redis everything is let through. See docs/adr/0015-own-circuit-breaker.md.
"""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import structlog
from redis import Redis

from wakupush.model.failures import Route
from wakupush.model.platforms import AppPlatform
from wakupush.redis.breaker import BreakerStore
from wakupush.runtime import metrics
from wakupush.runtime.settings import BreakerSettings

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds for which a process uses what it read last.
CACHE_SECONDS: Final = 1.0
#: Seconds for which it is remembered that slots are full; every process has read it by then.
FULL_SECONDS: Final = 2 * CACHE_SECONDS
#: Deliveries that are posted as probes, each in a post of its own; the first that gets through ends the pause.
PROBES: Final = 3
#: Seconds without a fault after which the faults in a row are forgotten.
MEMORY_SECONDS: Final = 60.0


class BreakerState(IntEnum):
    """What a breaker lets through; the numbers are those of its metric."""

    CLOSED = 0
    PROBING = 1
    OPEN = 2


@dataclass(frozen=True, slots=True)
class _View:
    """A breaker as it was read."""

    state: BreakerState = BreakerState.CLOSED
    #: In a row, while it is closed.
    faults: int = 0
    #: Under way.
    probes: int = 0
    full: bool = False


class Breaker:
    """The breakers of all apps and platforms, as one process sees them: what it read is up to a second old.

    Args:
        settings: when it opens and for how long.
        probe_seconds: after that a probe counts as over even without a report: its process died. Longer than a post.
    """

    def __init__(
        self,
        redis: Redis,
        settings: BreakerSettings,
        probe_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = BreakerStore(redis)
        self._settings = settings
        self._probe_seconds = probe_seconds
        self._clock = clock
        self._views: dict[AppPlatform, tuple[float, _View]] = {}
        self._hung: dict[AppPlatform, float] = {}
        #: Deliveries that were enqueued as probes and, as far as is known, not taken; and since when.
        self._enqueued: dict[AppPlatform, tuple[float, int]] = {}

    def is_closed(self, app_platform: AppPlatform) -> bool:
        """Return whether posts may be begun without asking for a probe."""
        return self._view(app_platform).state is BreakerState.CLOSED

    def claimable(self, app_platform: AppPlatform, most: int) -> int:
        """Return how many due deliveries, at most `most`, may be enqueued; `note_enqueued` takes note of them.

        Beat asks all the time, so the metric of the state is set here: in an idle worker it would grow old. Beat reads
        the breaker anew unless it was closed, to see at once that it is.
        """
        if not self.is_closed(app_platform):
            self._forget(app_platform)
        view = self._view(app_platform)
        metrics.BREAKER_STATE.labels(*app_platform.labels).set(view.state)
        if view.state is BreakerState.CLOSED:
            return most
        if view.state is BreakerState.OPEN:
            return 0
        since, enqueued = self._enqueued.get(app_platform, (-math.inf, 0))
        if self._clock() - since >= CACHE_SECONDS:
            enqueued = 0
        return max(0, min(most, PROBES - view.probes - enqueued))

    def note_enqueued(self, app_platform: AppPlatform, deliveries: int) -> None:
        """Take note of due deliveries that were enqueued: more than the probes would lose their turn."""
        if not self.is_closed(app_platform):
            self._enqueued[app_platform] = self._clock(), deliveries

    def note_taken(self) -> None:
        """Take note that workers have taken all that was enqueued."""
        self._enqueued.clear()

    def is_full(self, app_platform: AppPlatform) -> bool:
        """Return whether some process had no slot for a post of it lately."""
        return self._view(app_platform).full

    def note_full(self, app_platform: AppPlatform) -> None:
        """Take note that this process has no slot for a post."""
        if not self._view(app_platform).full:
            self._forget(app_platform)
            self._store.full(app_platform, seconds=FULL_SECONDS)

    def take_probes(self, app_platform: AppPlatform, most: int) -> int | None:
        """Return how many deliveries, at most `most`, may be posted as probes; None if all may, not as probes."""
        if self.is_closed(app_platform):
            return None
        # Even if it was open when it was read: who enqueued a probe may know better.
        self._forget(app_platform)
        probes = self._store.probe(app_platform, most, most=PROBES, seconds=self._probe_seconds)
        return None if probes is None or probes < 0 else probes

    def note(self, app_platform: AppPlatform, routes: Iterable[Route], *, probe: bool) -> None:
        """Take note of what the outcomes of one post say about the route.

        One outcome that shows that the route works outweighs all others. Without news, as usual, Redis is not asked.
        """
        routes = set(routes)
        if Route.WORKS in routes:
            view = self._view(app_platform)
            if view.state is not BreakerState.CLOSED or view.faults:
                self._forget(app_platform)
                if self._store.works(app_platform):
                    log.info("breaker_closed", app=app_platform.app, platform=app_platform.platform.label)
        elif Route.BROKEN in routes:
            self._broken(app_platform, reason="faults", probe=probe)
        elif probe:
            self._forget(app_platform)
            self._store.over(app_platform)

    def note_hang(self, app_platform: AppPlatform) -> None:
        """Take note that all slots for posts of this process hang: a fault, of which each process adds one a second.

        A process that was suspended finds its posts old, too: the success of another one ends the row.
        """
        now = self._clock()
        if now - self._hung.get(app_platform, -math.inf) >= CACHE_SECONDS:
            self._hung[app_platform] = now
            self._broken(app_platform, reason="slots")

    def _broken(self, app_platform: AppPlatform, *, reason: str, probe: bool = False) -> None:
        pause = self._settings.pause
        self._forget(app_platform)
        opened = self._store.fault(app_platform, self._settings.faults, pause=pause, memory=MEMORY_SECONDS, probe=probe)
        if opened == 1:
            metrics.BREAKER_OPENED.labels(*app_platform.labels).inc()
            log.error(
                "breaker_opened",
                app=app_platform.app,
                platform=app_platform.platform.label,
                reason=reason,
                seconds=pause,
            )
        elif opened:
            log.warning("breaker_stays_open", app=app_platform.app, platform=app_platform.platform.label, seconds=pause)

    def _view(self, app_platform: AppPlatform) -> _View:
        read, view = self._views.get(app_platform, (None, _View()))
        now = self._clock()
        if read is None or now - read >= CACHE_SECONDS:
            view = _seen(self._store.read(app_platform))
            self._views[app_platform] = now, view
        return view

    def _forget(self, app_platform: AppPlatform) -> None:
        """Read anew next time: what is stored is about to change."""
        self._views.pop(app_platform, None)


def _seen(read: tuple[bool, bool, int, int, bool] | None) -> _View:
    if read is None:
        return _View()
    tripped, is_open, probes, faults, full = read
    state = BreakerState.CLOSED
    if tripped:
        state = BreakerState.OPEN if is_open else BreakerState.PROBING
    return _View(state, faults, probes, full)
