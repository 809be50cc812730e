"""Running the jobs, each in a thread of its own."""

import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

import structlog

from wakupush.runtime import metrics
from wakupush.runtime.logging import is_logged
from wakupush.server.beat.beat import Beat
from wakupush.server.beat.jobs import JOBS
from wakupush.server.errors import is_outage

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds that the pause after a job grows to while it fails.
GROWN_SECONDS: Final = 5.0
#: Seconds within which a job that failed runs again. A `prune` that did not get a lock held up writes.
RETRY_SECONDS: Final = 60.0
#: Seconds that a run may take before its job counts as stuck. A job with a longer pause may take as long as its pause.
STUCK_SECONDS: Final = 120.0


class Turns:
    """When each job was last begun, and whether it worked last time."""

    def __init__(self) -> None:
        #: Monotonic seconds.
        self.begun = dict.fromkeys(JOBS, time.monotonic())
        #: A job that pauses for long may take long: beat is ready before the first run of such a job ends.
        self.worked = {work: pause > STUCK_SECONDS for work, pause in JOBS.items()}

    def healthy(self) -> dict[str, bool]:
        """Say of each job, by its name, whether it is repeated; one that fails is."""
        now = time.monotonic()
        return {
            work.__name__: now - self.begun[work] < pause + max(pause, STUCK_SECONDS) for work, pause in JOBS.items()
        }

    def ready(self) -> dict[str, bool]:
        """Say of each job, by its name, whether its last run worked."""
        return {work.__name__: worked for work, worked in self.worked.items()}


def run(beat: Beat, stop: Event, turns: Turns) -> None:
    """Run all jobs, each in a thread of its own, until `stop` is set; what was begun is finished."""
    threads = [
        Thread(target=_repeat, args=(beat, stop, turns, work, pause), name=work.__name__)
        for work, pause in JOBS.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _repeat(beat: Beat, stop: Event, turns: Turns, work: Callable[[Beat], object], pause: float) -> None:
    failures = 0
    while not stop.is_set():
        turns.begun[work] = time.monotonic()
        try:
            work(beat)
        except Exception as error:
            failures += 1
            turns.worked[work] = False
            metrics.JOBS_FAILED.labels(work.__name__).inc()
            if not is_outage(error):
                log.exception("job_failed", job=work.__name__)
            elif is_logged(failures):
                log.warning("job_failed", job=work.__name__, error=type(error).__name__, failures=failures)
            stop.wait(min(pause * 2.0 ** min(failures, 10), max(pause, GROWN_SECONDS), RETRY_SECONDS))
        else:
            failures = 0
            turns.worked[work] = True
            stop.wait(pause)
