"""The aims, with what they are compared, and whether figures of several runs meet them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

#: Times the CPU of an honest message of its kind and size.
CPU = 2.0
#: Stored bytes for each byte that was sent.
STORED = 4.0
#: Share of the memory of its pod that a process may need.
MEMORY = 1.0
#: Times the p99 of honest requests and queries alone; their devices had a push before.
P99 = 1.5
#: Seconds that the slowest honest first registration may take.
FIRST = 10.0
#: Share of all cores that others may have used while something was measured.
OTHERS = 0.1


class Verdict(Enum):
    """Whether the runs of a measurement meet an aim."""

    PASS = "pass"  # noqa: S105 - it is no password
    MISS = "miss"
    NOISY = "noisy"


@dataclass(frozen=True)
class Line:
    """The CPU seconds of an honest message by its size: a straight line through what was measured."""

    #: Bytes and CPU seconds of a message, the smallest first.
    points: Sequence[tuple[float, float]]

    def at(self, size: float) -> float:
        """Return the CPU seconds of a message; none is smaller than the smallest."""
        (low, least), (high, most) = self.points[0], self.points[-1]
        if size <= low or high == low:
            return least
        return least + (most - least) * (size - low) / (high - low)


def verdict(figures: Sequence[float], most: float) -> Verdict:
    """Return whether figures, one of each run, are at most this large; runs that disagree decide nothing."""
    if max(figures) <= most:
        return Verdict.PASS
    return Verdict.MISS if min(figures) > most else Verdict.NOISY


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """Return 1 if an aim is missed, else 2 if the machine was too noisy to say, else 0."""
    if Verdict.MISS in verdicts:
        return 1
    return 2 if Verdict.NOISY in verdicts else 0
