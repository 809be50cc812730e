"""`python -m chaos.wrong_clock`: wakupush on a machine whose clock is wrong by CHAOS_CLOCK seconds.

What asks the system for the time by other ways than `time.time` is told the right one: of ingest that is nothing.
"""

import os
import time

_right = time.time
_offset = float(os.environ["CHAOS_CLOCK"])
time.time = lambda: _right() + _offset

from wakupush.cli import main  # noqa: E402 - after the clock is set

if __name__ == "__main__":
    main()
