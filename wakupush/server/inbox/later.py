"""Doing work at a later time, without holding up the caller."""

from __future__ import annotations

import time
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from threading import Condition, Thread

import structlog

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


class Later:
    """A thread that does what it is given when its time has come; made after a fork."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._changed = Condition()
        self._closing = False
        self._thread = Thread(target=self._run, name="later", daemon=True)
        self._thread.start()

    def do(self, seconds: float, work: Callable[[], object]) -> None:
        """Do work in so many seconds; a failure is only logged."""
        with self._changed:
            heappush(self._waiting, (time.monotonic() + seconds, next(self._numbers), work))
            self._changed.notify()

    def close(self) -> None:
        """Do what is left, each at its time, and end."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            try:
                work()
            except Exception:
                log.exception("unfinished")

    def _next(self) -> Callable[[], object] | None:
        """Wait for the next one's time; None at the end."""
        with self._changed:
            while self._waiting or not self._closing:
                left = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if left is not None and left <= 0:
                    return heappop(self._waiting)[2]
                self._changed.wait(left)
            return None
