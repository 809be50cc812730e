"""What a process does beside its tasks: it follows up batches, and publishes answers when they are due."""

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import heappop, heappush
from itertools import count
from threading import Condition, Semaphore, Thread
from typing import Any, Final, TypeVar

import structlog

from wakupush.runtime import metrics
from wakupush.runtime.logging import is_logged
from wakupush.runtime.threads import submit

T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Batches of a process that are followed up at the same time, at most. A slow gorush holds up each for as long as its
#: answers can wait.
BATCHES: Final = 8
#: Bytes of their answers and notifications together, at most; one that is larger is followed up alone.
BYTES: Final = 16 * 1024 * 1024
#: Bytes of the objects around an answer that is held back, about.
ITEM_BYTES: Final = 1024
#: Seconds for which a process that ends still publishes what is held back.
CLOSE_SECONDS: Final = 5.0
#: Threads that publish the answers that are due: if the nodes are slow, so many slots leave at the same time.
ANSWER_THREADS: Final = 8


class Followers:
    """Threads of a process that follow up batches; made after a fork."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(BATCHES, "follow-up")
        self._changed = Condition()
        #: Bytes of each batch that is followed up, by a name of its own.
        self._sizes: dict[object, int] = {}

    def do(self, size: int, work: Callable[[], object]) -> None:
        """Follow up a batch; a failure is only logged. This waits for room: a full process takes no further task.

        A time limit of the task ends the wait, not the follow-up, whose effects are committed.

        Args:
            size: bytes that the batch holds meanwhile.
        """
        try:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        not self._sizes or (len(self._sizes) < BATCHES and sum(self._sizes.values()) + size <= BYTES)
                    )
                )
        finally:
            self._begin(size, work)

    def wait(self) -> None:
        """Wait until nothing is left to do."""
        with self._changed:
            self._changed.wait_for(lambda: not self._sizes)

    def close(self) -> None:
        """Do what is left, and end."""
        self._threads.shutdown()

    def _begin(self, size: int, work: Callable[[], object]) -> None:
        batch = object()
        try:
            with self._changed:
                self._sizes[batch] = size
                metrics.FOLLOW_UPS.inc()
            self._threads.submit(self._do, batch, work)
        except BaseException:
            # For example there is no thread to be had.
            self._end(batch)
            raise

    def _do(self, batch: object, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            log.exception("unfinished")
        finally:
            self._end(batch)

    def _end(self, batch: object) -> None:
        with self._changed:
            if self._sizes.pop(batch, None) is not None:
                metrics.FOLLOW_UPS.dec()
            self._changed.notify_all()


class Later:
    """Does what it is given when its time has come, all that is due together; made after a fork.

    It holds `BYTES` at most. What finds no room, or no thread when it is due, is dropped: the outbox has it.

    Args:
        threads: what is due at different times is done side by side in so many threads. While all are busy, what
            becomes due waits, to be done together.
    """

    def __init__(self, threads: int = 1) -> None:
        #: When each item is due, in monotonic seconds, its number and size, what is done with it, and the item.
        self._waiting: list[tuple[float, int, int, Callable[[list[Any]], object], Any]] = []
        self._numbers = count()
        self._bytes = 0
        self._dropped = 0
        self._changed = Condition()
        #: When closing ends, in monotonic seconds; never, while it is open.
        self._ends = math.inf
        self._free = Semaphore(threads)
        self._threads = ThreadPoolExecutor(threads, "later")
        self._timer = Thread(target=self._run, name="timer", daemon=True)
        self._timer.start()

    def do(self, due: float, size: int, work: Callable[[list[T]], object], item: T) -> None:
        """When it is due do work with an item, and with others that it is due for; a failure is only logged.

        Args:
            due: in monotonic seconds.
            size: bytes of the item, besides those of the objects around it.
        """
        size += ITEM_BYTES
        with self._changed:
            if self._bytes + size > BYTES:
                self._dropped += 1
                if is_logged(self._dropped):
                    log.warning("later_full", dropped=self._dropped)
                return
            self._bytes += size
            heappush(self._waiting, (due, next(self._numbers), size, work, item))
            self._changed.notify()

    def wait_until(self, time_due: float) -> None:
        """Return at this time, in monotonic seconds: work that has prepared itself calls this."""
        time.sleep(max(0.0, time_due - time.monotonic()))

    def close(self) -> None:
        """Do what is due within `CLOSE_SECONDS`, each at its time, drop the rest, and end."""
        with self._changed:
            self._ends = time.monotonic() + CLOSE_SECONDS
            self._changed.notify()
        self._timer.join()
        self._threads.shutdown()

    def _run(self) -> None:
        while self._free.acquire() and (due := self._due()):
            try:
                submit(self._threads, partial(self._do, due))
            except RuntimeError:
                self._free.release()
                log.exception("no_thread")

    def _do(self, due: dict[Callable[[list[Any]], object], list[Any]]) -> None:
        try:
            for work, items in due.items():
                try:
                    work(items)
                except Exception:
                    log.exception("unfinished")
        finally:
            # Also if the logger raises, as one that prints to a closed file does.
            self._free.release()

    def _due(self) -> dict[Callable[[list[Any]], object], list[Any]]:
        """Wait until something is due, and return all that is, by what is done with it; nothing when this is closed."""
        due: dict[Callable[[list[Any]], object], list[Any]] = {}
        with self._changed:
            while not due and (now := time.monotonic()) < self._ends and (self._waiting or self._ends == math.inf):
                while self._waiting and self._waiting[0][0] <= now:
                    _, _, size, work, item = heappop(self._waiting)
                    self._bytes -= size
                    due.setdefault(work, []).append(item)
                if not due:
                    wait = min(self._waiting[0][0] if self._waiting else math.inf, self._ends) - now
                    self._changed.wait(None if wait == math.inf else wait)
        return due
