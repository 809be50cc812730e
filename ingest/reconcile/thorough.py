"""Walking all that the ledger remembers, in slices: for late messages, and for those missed during an outage."""

import math
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import structlog

from wakupush.ingest.reconcile.recent import is_due, lies_behind
from wakupush.ingest.reconcile.walk import NANOSECONDS, Tally, TooLong, Walker
from wakupush.postgres import reconciliation
from wakupush.postgres.reconciliation import Track
from wakupush.runtime.settings import ReconcileSettings
from wakupush.waku.errors import EndlessPages

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds of a slice at least; it is halved while there are more than `SLICE_PAGES` in it.
LEAST_SECONDS: Final = 1.0
#: Pages of a slice that can be made shorter.
SLICE_PAGES: Final = 1000
#: Seconds between walks over the whole window: a message's time is its sender's, so it can come late.
FULL_SECONDS: Final = 3600.0
#: Seconds between looks at whether something is due.
IDLE_SECONDS: Final = 1.0


@dataclass(slots=True)
class Course:
    """A walk in slices, which goes on where it stopped."""

    walker: Walker
    shard: str
    #: Up to where it went, in seconds since the epoch.
    at: float
    #: Length of the next slice.
    seconds: float = field(init=False)
    tally: Tally = field(default_factory=lambda: Tally(0.0))

    def __post_init__(self) -> None:
        """Begin with a slice as long as it may be."""
        self.seconds = self.walker.slice_seconds

    def step(self, least: float, end: float) -> None:
        """Walk the next slice.

        Args:
            least: what is older is left out, because the ledger may have forgotten it: a course can be slower than the
                clock. In seconds since the epoch.
            end: of the course, in seconds since the epoch.

        Raises:
            Exception: see `Walker.walk`; the slice is walked again the next time.
        """
        self.at = min(max(self.at, least), end)
        until = min(self.at + self.seconds, end)
        is_short = until - self.at <= LEAST_SECONDS
        try:
            self.tally.add(self.walker.walk(self.shard, self.at, until, most_pages=None if is_short else SLICE_PAGES))
        except (TooLong, EndlessPages):
            if not is_short:
                self.seconds = max(LEAST_SECONDS, (until - self.at) / 2)
                return
            # No network carries so many in a second: the Store makes them up, and hides nothing else by it.
            facts = {"store": self.walker.name, "pubsub_topic": self.shard, "since": self.at, "until": until}
            log.error("slice_skipped", **facts)  # noqa: TRY400 - the traceback shows nothing more
        self.seconds = min(self.walker.slice_seconds, self.seconds * 2)
        self.at = until


@dataclass(slots=True)
class ShardProgress:
    """How far the walks of a shard are. Times are in seconds since the epoch."""

    catch_up: Course | None = None
    #: When to check whether to catch up.
    catch_up_due: float = -math.inf
    whole: Course | None = None
    #: None until the first walk of this process.
    whole_due: float | None = None
    #: From when on messages are missing that the last whole walk found, and when to look for them again.
    missing_since: float = math.inf
    missing_due: float = math.inf


@dataclass(slots=True, kw_only=True)
class Thorough:
    """Walks a Store's whole window each `FULL_SECONDS`, and first the time from the watermark to the recent messages.

    The database has both positions, so a restarted process goes on there.
    """

    walker: Walker
    shards: tuple[str, ...]
    settings: ReconcileSettings
    #: Such a Store has no recent walks, so this one goes up to the present, and follows every few minutes.
    is_store_peer: bool = False
    _progress: defaultdict[str, ShardProgress] = field(default_factory=lambda: defaultdict(ShardProgress))

    def __post_init__(self) -> None:
        """Show watermarks as of now if no recent walk does."""
        for shard in self.shards if self.is_store_peer else ():
            self.walker.show_watermark(shard, time.time())

    def run(self) -> None:
        """Walk until the process is to stop; the current page is finished."""
        walker = self.walker
        while not walker.stop.is_set():
            walker.turned_at = time.monotonic()
            results = [
                walker.attempt(shard, partial(self.turn, shard)) for shard in self.shards if walker.is_due(shard)
            ]
            if not any(results):
                walker.stop.wait(IDLE_SECONDS)

    def turn(self, shard: str) -> bool:
        """Walk a slice of a due walk; return False if none is due."""
        now = time.time()
        least = now - self.walker.kind.window
        # The recent walks look at newer messages.
        end = now if self.is_store_peer else now - self.settings.overlap
        progress = self._progress[shard]
        if course := self._to_catch_up(shard, progress, now):
            course.step(least, end)
            self.walker.settle(shard, course.at, course.tally.oldest_missing)
            if course.at >= end:
                progress.catch_up = None
            return True
        if course := self._to_walk(shard, progress, now):
            course.step(least, end)
            self._place(shard, course.at)
            if course.at >= end:
                progress.whole = None
                if course.tally.oldest_missing is not None:
                    # A second before it: as a float it may be rounded.
                    progress.missing_since = course.tally.oldest_missing / NANOSECONDS - 1
                    progress.missing_due = now + self._claim_seconds
            return True
        return False

    def _to_catch_up(self, shard: str, progress: ShardProgress, now: float) -> Course | None:
        """Return the walk from the watermark on, if that is behind; it repeats what is still missing."""
        overlap = self.settings.overlap
        if progress.catch_up is not None or not is_due(progress.catch_up_due, now, overlap / 2):
            return progress.catch_up
        progress.catch_up_due = now + overlap / 2
        watermark = self.walker.watermark(shard)
        if not lies_behind(watermark, now, overlap):
            return None
        least = now - self.walker.kind.window
        since = least if watermark is None else max(watermark - overlap, least)
        if since == least:
            progress.whole_due = now + FULL_SECONDS
        progress.catch_up = Course(self.walker, shard, since)
        return progress.catch_up

    def _to_walk(self, shard: str, progress: ShardProgress, now: float) -> Course | None:
        """Return the due walk, if any: over the whole window, or from the oldest message that was missing."""
        if progress.whole is not None:
            return progress.whole
        least = now - self.walker.kind.window
        is_whole_due = progress.whole_due is None or is_due(progress.whole_due, now, FULL_SECONDS)
        if progress.whole_due is None:
            since = self._resume_at(shard) or least
        elif is_whole_due:
            since = least
        elif progress.missing_due < math.inf and is_due(progress.missing_due, now, self._claim_seconds):
            since = progress.missing_since
        else:
            return None
        if is_whole_due:
            progress.whole_due = now + FULL_SECONDS
        progress.missing_due = math.inf
        progress.whole = Course(self.walker, shard, since)
        return progress.whole

    @property
    def _claim_seconds(self) -> float:
        return self.walker.enqueuer.settings.claim_ttl

    def _track(self, shard: str) -> Track:
        return replace(self.walker.track(shard), walk=f"{self.walker.kind.name}, whole window")

    def _resume_at(self, shard: str) -> float | None:
        """Return up to where an earlier process walked the whole window without finishing it."""
        with self.walker.pool.connection() as connection:
            at = reconciliation.watermark(connection, self._track(shard))
        is_over = at is None or at / NANOSECONDS > time.time() - 2 * self.settings.overlap
        return None if at is None or is_over else at / NANOSECONDS

    def _place(self, shard: str, at: float) -> None:
        with self.walker.pool.connection() as connection:
            reconciliation.place(connection, self._track(shard), int(at * NANOSECONDS))
