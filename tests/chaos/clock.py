"""A machine whose clock is wrong by as many seconds as a file says, which may change at any time.

What asks the system for the time by other ways than `time.time` and `time.time_ns` is told the right one. Of the
server's own processes that is nothing.
"""

import os
import time
from pathlib import Path

_right, _right_ns, _monotonic = time.time, time.time_ns, time.monotonic
#: Seconds after which the file is read again.
_EVERY = 0.2


class _Clock:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0.0
        self._read_at = 0.0

    def offset(self) -> float:
        now = _monotonic()
        if now > self._read_at + _EVERY:
            self._read_at, self._offset = now, float(self._file.read_text() or self._offset)
        return self._offset


def begin() -> None:
    """Let this process have the clock of the file that CHAOS_CLOCK names; to be called before others import `time`."""
    if name := os.environ.get("CHAOS_CLOCK"):
        clock = _Clock(Path(name))
        time.time = lambda: _right() + clock.offset()
        time.time_ns = lambda: _right_ns() + int(clock.offset() * 1e9)
