"""Slots for posts to gorush: some for each platform, as a dead Firebase must not stop iOS."""

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock, get_ident
from typing import TypeVar

from wakupush.model.platforms import Platform

T = TypeVar("T")


class Slots:
    """Threads for posts, some for each platform: one that outlives its task must not hold up the worker.

    Posts of beat take half of them at most: a backlog must not hold up new requests.

    Args:
        slots: posts at the same time, of all platforms together; at least one for each.
    """

    def __init__(self, slots: int) -> None:
        self._each = max(1, slots // len(Platform))
        #: Slots in use, by whether beat enqueued what is posted in them.
        self._used: dict[Platform, Counter[bool]] = {platform: Counter() for platform in Platform}
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(self._each * len(Platform), "post")
        #: When the post that a thread makes was begun, in monotonic seconds.
        self._begun: dict[Platform, dict[int, float]] = {platform: {} for platform in Platform}

    def reserve(self, platform: Platform, most: int, *, scheduled: bool = False) -> int:
        """Take as many slots of a platform as are free, at most `most`, and return how many."""
        with self._lock:
            used = self._used[platform]
            free = min(self._each - used.total(), self._limit(scheduled=scheduled) - used[scheduled])
            slots = max(0, min(most, free))
            used[scheduled] += slots
        return slots

    def release(self, platform: Platform, slots: int, *, scheduled: bool = False) -> None:
        """Give back slots that were reserved and are not needed."""
        with self._lock:
            self._used[platform][scheduled] -= slots

    def submit(self, platform: Platform, work: Callable[[], T], *, scheduled: bool = False) -> Future[T]:
        """Start work in a slot that was reserved; it is given back at the end."""

        def run() -> T:
            try:
                return work()
            finally:
                self._begun[platform].pop(get_ident(), None)
                self.release(platform, 1, scheduled=scheduled)

        return self._threads.submit(run)

    def begin(self, platform: Platform) -> None:
        """Say that the calling thread, in its slot, begins a post."""
        self._begun[platform][get_ident()] = time.monotonic()

    def hang(self, platform: Platform, seconds: float, *, scheduled: bool = False) -> bool:
        """Return whether a platform has no free slot because all its posts under way take longer than this."""
        starts = list(self._begun[platform].values())
        return len(starts) >= self._limit(scheduled=scheduled) and max(starts) < time.monotonic() - seconds

    def close(self) -> None:
        """Wait for everything that is under way."""
        self._threads.shutdown()

    def _limit(self, *, scheduled: bool) -> int:
        return max(1, self._each // 2) if scheduled else self._each
