"""A bounded executor of posts: one that outlives its task must not hold up the worker, nor may they pile up."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore
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
        each = max(1, slots // len(TokenType))
        self._slots = {platform: BoundedSemaphore(each) for platform in TokenType}
        self._threads = ThreadPoolExecutor(each * len(TokenType), "post")

    def reserve(self, platform: TokenType, most: int) -> int:
        """Take as many slots of a platform as are free, at most `most`, and return how many."""
        taken = 0
        while taken < most and self._slots[platform].acquire(blocking=False):
            taken += 1
        return taken

    def submit(self, platform: TokenType, work: Callable[[], T]) -> Future[T]:
        """Start work in a slot that was reserved; it is given back at the end."""
        future = self._threads.submit(work)
        future.add_done_callback(lambda _: self._slots[platform].release())
        return future

    def close(self) -> None:
        """Wait for everything that is under way."""
        self._threads.shutdown()
