"""Whether a worker takes tasks: its event loop notes its turns, and a probe reads the notes.

A ping through the broker is not enough: it also fails if the broker is down, which no restart of the worker heals.
"""

import time
from dataclasses import dataclass
from typing import Any, ClassVar

from celery import bootsteps
from celery.worker.consumer import Tasks

from wakupush.redis.celery_app import TIME_LIMIT_SECONDS
from wakupush.runtime import probes

#: Seconds between two notes.
NOTE_SECONDS = 1.0
#: Seconds without a turn of the loop after which it counts as stuck. It never waits for a task.
STUCK_SECONDS = 60.0
#: Seconds without asking Redis for a task after which the worker counts as deaf. While all its processes are busy, a
#: worker does not ask; after the time limit one of them is free. kombu replaces a lost connection within a minute.
DEAF_SECONDS = TIME_LIMIT_SECONDS + 90.0


@dataclass(slots=True)
class Pulse:
    """The last turns of a worker's parts, in monotonic seconds."""

    #: Since when there has been a connection to Redis; None while there is none.
    connected_at: float | None = None
    #: The last turn of the event loop, and the last time that Redis was asked for a task.
    turned_at: float = 0.0
    asked_at: float = 0.0

    def healthy(self) -> probes.Checks:
        """Return whether a restart would not help the worker. It counts as healthy while it tries to reach Redis."""
        connected_at = self.connected_at
        if connected_at is None:
            return {"event loop": True, "consumer": True}
        now = time.monotonic()
        return {
            "event loop": now - max(self.turned_at, connected_at) < STUCK_SECONDS,
            "consumer": now - max(self.asked_at, connected_at) < DEAF_SECONDS,
        }

    def ready(self) -> probes.Checks:
        """Return whether the worker takes tasks, or will when one of its processes is free."""
        return {"connected": self.connected_at is not None, **self.healthy()}


class Noting(bootsteps.StartStopStep):
    """The part of Celery's consumer that notes; it lives as long as a connection does."""

    requires = (Tasks,)
    #: One in the process, as the worker is.
    pulse: ClassVar[Pulse] = Pulse()

    def start(self, parent: Any) -> None:
        """Note from now on."""
        self.pulse.connected_at = time.monotonic()
        # Celery cancels it when the connection ends.
        parent.timer.call_repeatedly(NOTE_SECONDS, self._note, (parent,))

    def stop(self, parent: Any) -> None:  # noqa: ARG002 - the name and arguments are Celery's
        """Note that the connection has ended."""
        self.pulse.connected_at = None

    def _note(self, parent: Any) -> None:
        self.pulse.turned_at = time.monotonic()
        # kombu shows this nowhere else; a test with a real worker fails if this attribute goes away.
        sent_at: float | None = parent.task_consumer.channel._brpop_sent_at  # noqa: SLF001
        self.pulse.asked_at = sent_at or 0.0
