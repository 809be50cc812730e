"""Following up batches while later ones are handled."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import Final

import structlog

from wakupush.runtime import metrics

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Batches of a process that are followed up at the same time, at most. A slow gorush holds up each for as long as its
#: answers can wait.
BATCHES: Final = 8
#: Bytes of their answers and notifications together, at most; one that is larger is followed up alone.
BYTES: Final = 16 * 1024 * 1024


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
            work: what is to be done.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._sizes or self._has_room(size))
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

    def _has_room(self, size: int) -> bool:
        return len(self._sizes) < BATCHES and sum(self._sizes) + size <= BYTES

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
