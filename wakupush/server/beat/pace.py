"""How many due deliveries beat enqueues: as many as workers take, as there are slots for, and as a ramp allows.

Nothing here is a number a second: a backlog drains faster with more workers.
"""

import math
from dataclasses import dataclass
from typing import Final

from wakupush.model.platforms import AppPlatform
from wakupush.server.delivery.breaker import PROBES

#: Tasks up to which beat always fills the dispatch queue: few, so that due deliveries do not delay new requests.
LEAST_TASKS: Final = 2
#: Seconds after which a kind of work gets one task even if the queue has no room.
SHARE_SECONDS: Final = 1.0
#: Seconds in which the deliveries of a look may double after a breaker closed; they begin with as many as the probes.
DOUBLING_SECONDS: Final = 5.0
#: Seconds between two cuts while slots are full, and the growth from look to look when they are free again.
CUT_SECONDS: Final = 1.0
GROWTH: Final = 1.1


@dataclass(slots=True, kw_only=True)
class _Work:
    """The deliveries of an app and platform. Times are monotonic seconds."""

    #: Deliveries of a look at most, since slots were full.
    limit: float = math.inf
    claimed: int = 0
    claimed_at: float
    cut_at: float = -math.inf
    #: When its breaker was last seen open or probing.
    broken_at: float = -math.inf


class Pace:
    """Says how much may be enqueued.

    Beat fills the dispatch queue up to some tasks. While workers take all of them between two looks, it doubles this
    depth; if they leave more than half, it halves it. So new requests wait behind what workers take in about two looks.

    Args:
        least: tasks, see `LEAST_TASKS`.
    """

    def __init__(self, least: int = LEAST_TASKS) -> None:
        self._least = self._depth = least
        self._room = least
        self._work: dict[AppPlatform | None, _Work] = {}

    def look(self, waiting: int) -> None:
        """Begin a look, at which so many tasks wait in the queue."""
        if waiting == 0 and self._room <= 0:
            self._depth *= 2
        elif waiting > self._depth / 2:
            self._depth = max(self._least, self._depth // 2)
        self._room = self._depth - waiting

    def allowed(
        self, work: AppPlatform | None, size: int, *, now: float, closed: bool = True, full: bool = False
    ) -> int:
        """Return how many deliveries may be enqueued.

        Args:
            work: their app and platform; None for those that are only to be ended.
            size: deliveries in a task.
            now: monotonic seconds.
            closed: whether their breaker is.
            full: whether a worker had no slot for such a post lately.
        """
        own, tasks = self._work.setdefault(work, _Work(claimed_at=now)), self._room
        if not closed:
            own.broken_at = now
        if not full:
            own.limit *= GROWTH
        elif now - own.cut_at >= CUT_SECONDS:
            own.limit = max(1.0, min(own.limit, own.claimed) / 2)
            own.cut_at = now
        if tasks <= 0:
            if now - own.claimed_at < SHARE_SECONDS:
                return 0
            tasks = 1
        ramp = PROBES * 2.0 ** min(64.0, (now - own.broken_at) / DOUBLING_SECONDS)
        return int(min(tasks * size, own.limit, ramp))

    def note(self, work: AppPlatform | None, deliveries: int, tasks: int, *, now: float) -> None:
        """Take note of what was enqueued."""
        if tasks:
            self._room -= tasks
            self._work[work].claimed = deliveries
            self._work[work].claimed_at = now
