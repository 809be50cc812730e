"""Slots for posts to gorush: some for each app and platform, as a dead Firebase must not stop iOS."""

import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock, get_ident
from typing import TypeVar

from wakupush.model.platforms import AppPlatform
from wakupush.runtime import threads
from wakupush.runtime.settings import CANARY

T = TypeVar("T")


class Slots:
    """Threads for posts, some for each app and platform: one that outlives its task must not hold up the worker.

    Posts of beat take half of them at most: a backlog must not hold up new requests.

    Args:
        app_platforms: all that there are.
        slots: posts at the same time, of all of these together; at least one for each. The canary has one besides.
            So has the app without a name if there are apps with names: it has no gorush then.
    """

    def __init__(self, app_platforms: Collection[AppPlatform], slots: int) -> None:
        have_names = any(one.app not in {"", CANARY} for one in app_platforms)
        besides = {"", CANARY} if have_names else {CANARY}
        users = sum(one.app not in besides for one in app_platforms)
        each = max(1, slots // max(1, users))
        self._most = {one: 1 if one.app in besides else each for one in app_platforms}
        #: Slots in use, by whether beat enqueued what is posted in them.
        self._used: dict[AppPlatform, Counter[bool]] = {one: Counter() for one in app_platforms}
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(sum(self._most.values()), "post")
        #: When the post that a thread makes was begun, in monotonic seconds.
        self._begun: dict[AppPlatform, dict[int, float]] = {one: {} for one in app_platforms}

    def reserve(self, app_platform: AppPlatform, most: int, *, scheduled: bool = False) -> int:
        """Take as many slots of an app and platform as are free, at most `most`, and return how many."""
        with self._lock:
            used = self._used[app_platform]
            limit = self._limit(app_platform, scheduled=scheduled)
            free = min(self._most[app_platform] - used.total(), limit - used[scheduled])
            slots = max(0, min(most, free))
            used[scheduled] += slots
        return slots

    def release(self, app_platform: AppPlatform, slots: int, *, scheduled: bool = False) -> None:
        """Give back slots that were reserved and are not needed."""
        with self._lock:
            self._used[app_platform][scheduled] -= slots

    def submit(self, app_platform: AppPlatform, work: Callable[[], T], *, scheduled: bool = False) -> Future[T]:
        """Start work in a slot that was reserved; it is given back at the end.

        Raises:
            RuntimeError: no thread can be had; the slot stays reserved.
        """

        def run() -> T:
            try:
                return work()
            finally:
                self.end(app_platform)
                self.release(app_platform, 1, scheduled=scheduled)

        return threads.submit(self._threads, run)

    def begin(self, app_platform: AppPlatform) -> None:
        """Say that the calling thread, in its slot, begins a post."""
        self._begun[app_platform][get_ident()] = time.monotonic()

    def end(self, app_platform: AppPlatform) -> None:
        """Say that the post of the calling thread has ended; its slot stays taken while the outcome is stored."""
        self._begun[app_platform].pop(get_ident(), None)

    def hang(self, app_platform: AppPlatform, seconds: float, *, scheduled: bool = False) -> bool:
        """Return whether an app and platform has no free slot because all its posts under way take longer than this."""
        starts = list(self._begun[app_platform].values())
        return (
            len(starts) >= self._limit(app_platform, scheduled=scheduled) and max(starts) < time.monotonic() - seconds
        )

    def close(self) -> None:
        """Wait for everything that is under way."""
        self._threads.shutdown()

    def _limit(self, app_platform: AppPlatform, *, scheduled: bool) -> int:
        most = self._most[app_platform]
        return max(1, most // 2) if scheduled else most
