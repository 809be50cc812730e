"""Waits that double."""

from dataclasses import dataclass
from random import Random

_JITTER = 1.2


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits in seconds: `first`, then twice as long each time, up to `most`."""

    first: float
    most: float

    @property
    def longest(self) -> float:
        """The longest possible wait in seconds."""
        return self.most * _JITTER

    def wait(self, attempt: int, random: Random) -> float:
        """Return the seconds to wait after an attempt (from 1), up to a fifth more so that clients spread out."""
        return min(self.most, self.first * 2.0 ** min(attempt - 1, 1000)) * random.uniform(1.0, _JITTER)
