"""Ending gracefully on SIGTERM and SIGINT."""

import signal
from threading import Event
from types import FrameType


def stop_on_signals() -> Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = Event()

    def handler(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)
    return stop
