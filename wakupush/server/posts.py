"""A bounded executor of posts: one that outlives its task must not hold up the worker, nor may they pile up."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore, get_ident
from typing import TYPE_CHECKING, TypeVar

from wakupush.protocol.registration import TokenType

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Posts:
    """Threads for posts; who finds no slot leaves the work to the schedule.

    Each platform has slots of its own: a dead Firebase must not stop iOS.

    Args:
        slots: posts at the same time, of all platforms together; at least one for each.
    """

    def __init__(self, slots: int) -> None:
        self._each = max(1, slots // len(TokenType))
        self._slots = {platform: BoundedSemaphore(self._each) for platform in TokenType}
        self._threads = ThreadPoolExecutor(self._each * len(TokenType), "post")
        #: When the post that a thread makes was begun, in monotonic seconds.
        self._begun: dict[TokenType, dict[int, float]] = {platform: {} for platform in TokenType}

    def reserve(self, platform: TokenType, most: int) -> int:
        """Take as many slots of a platform as are free, at most `most`, and return how many."""
        taken = 0
        while taken < most and self._slots[platform].acquire(blocking=False):
            taken += 1
        return taken

    def release(self, platform: TokenType, slots: int) -> None:
        """Give back slots that were reserved and are not needed."""
        for _ in range(slots):
            self._slots[platform].release()

    def submit(self, platform: TokenType, work: Callable[[], T]) -> Future[T]:
        """Start work in a slot that was reserved; it is given back at the end."""

        def run() -> T:
            try:
                return work()
            finally:
                self._begun[platform].pop(get_ident(), None)
                self._slots[platform].release()

        return self._threads.submit(run)

    def begin(self, platform: TokenType) -> None:
        """Say that the calling thread, in its slot, begins a post."""
        self._begun[platform][get_ident()] = time.monotonic()

    def hang(self, platform: TokenType, seconds: float) -> bool:
        """Say whether every slot of a platform is held by a post that takes longer than so many seconds."""
        begun = list(self._begun[platform].values())
        return len(begun) == self._each and max(begun) < time.monotonic() - seconds

    def close(self) -> None:
        """Wait for everything that is under way."""
        self._threads.shutdown()
