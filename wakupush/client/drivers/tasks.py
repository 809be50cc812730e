"""Background tasks."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from wakupush.runtime.tracebacks import places

log = logging.getLogger(__name__)


class Tasks:
    """Background tasks that end with their owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_end)

    async def stop(self) -> None:
        """Cancel everything and wait for its end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("task_failed: %s at %s", type(error).__name__, places(error))
