"""Looking for recent messages, every few seconds: clients may be waiting for answers."""

import math
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from wakupush.ingest.reconcile.walk import Tally, Walker
from wakupush.runtime.settings import ReconcileSettings

#: A look begins this many seconds before the end of the last one: honest messages are in the Store by then.
REACH_SECONDS: Final = 5.0
#: How many overlaps recent walks look back at most; the thorough walks catch up on older messages.
MOST_OVERLAPS: Final = 3


@dataclass(slots=True, kw_only=True)
class Recent:
    """Looks at a Store's newest messages each `pause`; twice in an `overlap`, further back, for what came late.

    A look reads what is new and the last seconds before it again. A look back moves the watermark: up to there
    everything that the Store has is in the ledger.
    """

    walker: Walker
    shards: tuple[str, ...]
    settings: ReconcileSettings
    #: Monotonic seconds of the last turn whose looks were all finished.
    finished_at: float = -math.inf
    #: By shard, in seconds since the epoch: the end of the last look, and when the next look back is due.
    _last_ends: dict[str, float] = field(default_factory=dict)
    _back_due: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Show watermarks as of now: Postgres may be down, or have none, and an alert needs a series that grows old."""
        for shard in self.shards:
            self.walker.show_watermark(shard, time.time())

    def run(self) -> None:
        """Look until the process is to stop; the current page is finished."""
        walker, pause = self.walker, self.settings.pause
        while not walker.stop.is_set():
            walker.turned_at = time.monotonic()
            tallies = [
                walker.attempt(shard, partial(self.turn, shard)) if walker.is_due(shard) else None
                for shard in self.shards
            ]
            if None not in tallies:
                self.finished_at = time.monotonic()
            walker.stop.wait(pause)

    def turn(self, shard: str) -> Tally:
        """Look at a shard, or back if it is time."""
        now, pause = time.time(), self.settings.overlap / 2
        if is_due(self._back_due.get(shard, -math.inf), now, pause):
            tally = self.look_back(shard)
            self._back_due[shard] = now + pause
        else:
            last_end = min(self._last_ends[shard], now)
            tally = self._look(shard, max(last_end - REACH_SECONDS, now - self.settings.overlap), now)
        return tally

    def look_back(self, shard: str) -> Tally:
        """Walk from before the watermark on, and move it."""
        now, kind, overlap = time.time(), self.walker.kind, self.settings.overlap
        watermark = self.walker.watermark(shard)
        if kind.content_topics and lies_behind(watermark, now, overlap):
            # The thorough walks catch up. For queries there are none: a look covers all that clients still wait for.
            return self._look(shard, now - min(overlap, kind.window), now)
        tally = self._look(shard, max(min(watermark or 0.0, now) - overlap, now - kind.window), now)
        self.walker.settle(shard, now, tally.oldest_missing)
        return tally

    def _look(self, shard: str, since: float, until: float) -> Tally:
        tally = self.walker.walk(shard, since, until)
        self._last_ends[shard] = until
        return tally


def is_due(due: float, now: float, most: float) -> bool:
    """Return whether a time has come. One more than `most` seconds ahead is from before the clock was set back."""
    return not now < due <= now + most


def lies_behind(watermark: float | None, now: float, overlap: float) -> bool:
    """Return whether a watermark (seconds since the epoch) is older than recent walks look back, or None."""
    return watermark is None or watermark - overlap < now - MOST_OVERLAPS * overlap
