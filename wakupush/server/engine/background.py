"""What a process does beside its tasks: it follows up batches, and publishes answers that are held back."""

import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from heapq import heappop, heappush
from itertools import count
from threading import Condition, Thread
from typing import Final

import structlog

from wakupush.model.platforms import AppPlatform
from wakupush.runtime import metrics

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Batches of a process that are followed up at the same time, at most. A slow gorush holds up each for as long as its
#: answers can wait.
BATCHES: Final = 8
#: Bytes of their answers and notifications together, at most; one that is larger is followed up alone.
BYTES: Final = 16 * 1024 * 1024
#: How many answers of an app and platform count as recent.
RECENT: Final = 100


class Followers:
    """Threads of a process that follow up batches; made after a fork."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(BATCHES, "follow-up")
        self._changed = Condition()
        self._sizes: list[int] = []

    def do(self, size: int, work: Callable[[], object]) -> None:
        """Follow up a batch; a failure is only logged. This waits for room: a full process takes no further task.

        Args:
            size: bytes that the batch holds meanwhile.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: not self._sizes or (len(self._sizes) < BATCHES and sum(self._sizes) + size <= BYTES)
            )
            self._sizes.append(size)
            metrics.FOLLOW_UPS.inc()
        self._threads.submit(self._do, size, work)

    def wait(self) -> None:
        """Wait until nothing is left to do."""
        with self._changed:
            self._changed.wait_for(lambda: not self._sizes)

    def close(self) -> None:
        """Do what is left, and end."""
        self._threads.shutdown()

    def _do(self, size: int, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            log.exception("unfinished")
        finally:
            with self._changed:
                self._sizes.remove(size)
                metrics.FOLLOW_UPS.dec()
                self._changed.notify_all()


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
        with self._changed:
            while self._waiting or not self._closing:
                wait = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if wait is not None and wait <= 0:
                    return heappop(self._waiting)[2]
                self._changed.wait(wait)
            return None


class Latencies:
    """For how long answers waited for the posts of an app and platform lately, in this process.

    Args:
        choose: returns one of several by chance.
    """

    def __init__(self, choose: Callable[[Sequence[float]], float] = random.choice) -> None:
        self._choose = choose
        self._recent: defaultdict[AppPlatform, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))

    def note(self, app_platforms: Iterable[AppPlatform], seconds: float) -> None:
        """Note that an answer waited for posts of these."""
        for app_platform in app_platforms:
            self._recent[app_platform].append(seconds)

    def draw(self, app_platform: AppPlatform, most: float) -> float:
        """Return one of the recent waits, or a random one up to `most` seconds if none is known."""
        return self._choose(self._recent[app_platform] or (random.uniform(0.0, most),))
