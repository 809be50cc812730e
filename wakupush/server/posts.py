"""A bounded executor of posts: one that outlives its task must not hold up the worker, nor may they pile up."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock, get_ident
from typing import TYPE_CHECKING, TypeVar

from wakupush.protocol.registration import TokenType

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Posts:
    """Threads for posts; who finds no slot leaves the work to the schedule.

    Each platform has slots of its own: a dead Firebase must not stop iOS. What the schedule enqueued takes half of them
    at most: a backlog must not hold up new requests.

    Args:
        slots: posts at the same time, of all platforms together; at least one for each.
    """

    def __init__(self, slots: int) -> None:
        self._each = max(1, slots // len(TokenType))
        #: Slots that are held, by whether the schedule enqueued what is posted in them.
        self._held: dict[TokenType, Counter[bool]] = {platform: Counter() for platform in TokenType}
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(self._each * len(TokenType), "post")
        #: When the post that a thread makes was begun, in monotonic seconds.
        self._begun: dict[TokenType, dict[int, float]] = {platform: {} for platform in TokenType}

    def reserve(self, platform: TokenType, most: int, *, scheduled: bool = False) -> int:
        """Take as many slots of a platform as are free, at most `most`, and return how many."""
        with self._lock:
            held = self._held[platform]
            free = min(self._each - held.total(), self._limit(scheduled=scheduled) - held[scheduled])
            taken = max(0, min(most, free))
            held[scheduled] += taken
        return taken

    def release(self, platform: TokenType, slots: int, *, scheduled: bool = False) -> None:
        """Give back slots that were reserved and are not needed."""
        with self._lock:
            self._held[platform][scheduled] -= slots

    def submit(self, platform: TokenType, work: Callable[[], T], *, scheduled: bool = False) -> Future[T]:
        """Start work in a slot that was reserved; it is given back at the end."""

        def run() -> T:
            try:
                return work()
            finally:
                self._begun[platform].pop(get_ident(), None)
                self.release(platform, 1, scheduled=scheduled)

        return self._threads.submit(run)

    def begin(self, platform: TokenType) -> None:
        """Say that the calling thread, in its slot, begins a post."""
        self._begun[platform][get_ident()] = time.monotonic()

    def hang(self, platform: TokenType, seconds: float, *, scheduled: bool = False) -> bool:
        """Say whether a platform has no free slot because posts take longer than this, all that are under way."""
        begun = list(self._begun[platform].values())
        return len(begun) >= self._limit(scheduled=scheduled) and max(begun) < time.monotonic() - seconds

    def close(self) -> None:
        """Wait for everything that is under way."""
        self._threads.shutdown()

    def _limit(self, *, scheduled: bool) -> int:
        return max(1, self._each // 2) if scheduled else self._each
