"""A bounded executor of posts: one that outlives its task must not hold up the worker, nor may they pile up."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Posts:
    """Threads for posts, at most `slots` at the same time; who finds none leaves the work to the schedule."""

    def __init__(self, slots: int) -> None:
        self._slots = BoundedSemaphore(slots)
        self._threads = ThreadPoolExecutor(slots, "post")

    def reserve(self, most: int) -> int:
        """Take as many slots as are free, at most `most`, and return how many."""
        taken = 0
        while taken < most and self._slots.acquire(blocking=False):
            taken += 1
        return taken

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Start work in a slot that was reserved; it is given back at the end."""
        future = self._threads.submit(work)
        future.add_done_callback(lambda _: self._slots.release())
        return future

    def close(self) -> None:
        """Wait for everything that is under way."""
        self._threads.shutdown()
