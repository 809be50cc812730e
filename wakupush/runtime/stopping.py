"""Ending gracefully on SIGTERM and SIGINT."""

import signal
from threading import Event


def stop_on_signals() -> Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
