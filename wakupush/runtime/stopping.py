"""Ending gracefully on SIGTERM and SIGINT."""

import os
import signal
from threading import Event, Thread


def stop_on_signals() -> Event:
    """Return an event that SIGTERM and SIGINT set, whatever the main thread waits for.

    The system may give a signal to any thread. Python runs handlers only in the main thread, which that does not wake:
    so a thread waits for the byte that Python writes at once.
    """
    stop = Event()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)

    def wait() -> None:
        os.read(reader, 1)
        stop.set()

    Thread(target=wait, name="signals", daemon=True).start()
    return stop
