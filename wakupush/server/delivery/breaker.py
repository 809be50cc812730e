"""A circuit breaker for each app and platform, shared by all workers: a dead route is left alone.

It is *closed* while all is well. `BreakerSettings.faults` posts in a row that found the route broken, or seconds in
which all slots of a process hung, *open* it: no post is begun for `BreakerSettings.pause`. Then it is *probing*: a few
deliveries are posted. The first that gets through closes it; one that finds the route broken opens it again. Without
Redis everything is let through. See docs/adr/0015-own-circuit-breaker.md.
"""

import math
import time
from collections.abc import Callable, Iterable
from typing import Final

import structlog
from redis import Redis

from wakupush.model.failures import Route
from wakupush.model.platforms import AppPlatform
from wakupush.redis.breaker import BreakerState, BreakerStore, BreakerView
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
        self._views: dict[AppPlatform, tuple[float, BreakerView]] = {}
        self._hung: dict[AppPlatform, float] = {}
        #: When deliveries were last enqueued as probes, and how many.
        self._enqueued: dict[AppPlatform, tuple[float, int]] = {}

    def is_closed(self, app_platform: AppPlatform) -> bool:
        """Return whether posts may be begun without asking for a probe."""
        return self._view(app_platform).state is BreakerState.CLOSED

    def show(self, app_platform: AppPlatform) -> None:
        """Set the metric of the state. Beat alone does, at each of its looks: in an idle worker it would grow old."""
        metrics.BREAKER_STATE.labels(*app_platform.labels).set(self._view(app_platform).state)

    def claimable(self, app_platform: AppPlatform, most: int) -> int:
        """Return how many due deliveries, at most `most`, may be enqueued; `note_enqueued` takes note of them.

        Unless the breaker was closed it is read anew, to see at once that it is.
        """
        if not self.is_closed(app_platform):
            self._forget(app_platform)
        view = self._view(app_platform)
        if view.state is BreakerState.CLOSED:
            return most
        if view.state is BreakerState.OPEN:
            return 0
        return max(0, min(most, PROBES - view.probes - self._probes_enqueued(app_platform)))

    def note_enqueued(self, app_platform: AppPlatform, deliveries: int) -> None:
        """Take note of due deliveries that were enqueued: more than the probes would lose their turn."""
        if not deliveries or self.is_closed(app_platform):
            return
        self._enqueued[app_platform] = self._clock(), deliveries + self._probes_enqueued(app_platform)

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

    def _probes_enqueued(self, app_platform: AppPlatform) -> int:
        """Return how many deliveries were enqueued lately as probes, and may not be taken yet."""
        since, enqueued = self._enqueued.get(app_platform, (-math.inf, 0))
        return enqueued if self._clock() - since < CACHE_SECONDS else 0

    def _view(self, app_platform: AppPlatform) -> BreakerView:
        """Return a breaker as it was read last. One that cannot be read counts as closed."""
        read, view = self._views.get(app_platform, (None, BreakerView()))
        now = self._clock()
        if read is None or now - read >= CACHE_SECONDS:
            view = self._store.read(app_platform) or BreakerView()
            self._views[app_platform] = now, view
        return view

    def _forget(self, app_platform: AppPlatform) -> None:
        """Read anew next time: what is stored is about to change."""
        self._views.pop(app_platform, None)
