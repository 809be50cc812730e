"""Waits that double: tenacity's strategy, computed for one step without sleeping."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tenacity import RetryCallState, Retrying, wait_exponential

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
        state = RetryCallState(Retrying(), fn=None, args=(), kwargs={})
        state.attempt_number = attempt
        return wait_exponential(multiplier=self.first, max=self.most)(state) * random.uniform(1.0, _JITTER)
