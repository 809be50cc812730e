"""Python starts this in every process: libfaketime 0.9.10 refuses `clock_nanosleep`, by which `time.sleep` waits."""

import select
import time


def _sleep(seconds: float) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = _sleep
