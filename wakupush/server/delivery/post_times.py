"""How long successful posts to proven devices take, in this process."""

from collections.abc import Iterable
from math import ceil
from threading import Lock
from typing import Final

from wakupush.model.registrations import Installation

#: Devices that the percentile is taken over; each counts once, so that none decides alone.
DEVICES: Final = 100
PERCENTILE: Final = 0.99


class PostTimes:
    """The 99th percentile of the seconds from the beginning of a first attempt's transaction to its stored success.

    It is taken over one success of each of 100 devices, and stays until 100 devices have had another one. So neither
    the absence of a push nor a stranger with few devices shows in it. Threads may share it.
    """

    def __init__(self) -> None:
        #: Seconds; None until enough devices were reached.
        self.percentile: float | None = None
        self._seconds: dict[Installation, float] = {}
        self._lock = Lock()

    def note(self, installations: Iterable[Installation], seconds: float) -> None:
        """Note that a post reached these devices, which earlier pushes had reached, too."""
        with self._lock:
            for installation in installations:
                self._seconds.setdefault(installation, seconds)
                if len(self._seconds) == DEVICES:
                    self.percentile = sorted(self._seconds.values())[ceil(PERCENTILE * DEVICES) - 1]
                    self._seconds.clear()
