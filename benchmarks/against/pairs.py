"""Ratios of pairs that were measured side by side, and bounds of their median."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

#: The confidence of a bound.
CONFIDENCE = 0.9
#: Spread of the base, from its least to its most, above which the machine was too noisy.
NOISY = 0.15


@dataclass(frozen=True)
class Ratios:
    """Ratios of ours to the base's, one of each pair."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        return geometric_mean(self.values)

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def upper(self) -> float:
        """A bound below which their median is with `CONFIDENCE`, for any distribution; infinite for too few pairs."""
        return self._bound(sorted(self.values), math.inf)

    @property
    def lower(self) -> float:
        """A bound above which their median is with `CONFIDENCE`; 0 for too few pairs."""
        return self._bound(sorted(self.values, reverse=True), 0.0)

    def _bound(self, ordered: Sequence[float], unknown: float) -> float:
        """Return the first value that the median does not lie beyond, by enough certainty (order statistics)."""
        ways = 0
        for position, value in enumerate(ordered):
            # The ways in which coins show `position` heads: a value is as likely on this side of the median as not.
            ways += math.comb(len(ordered), position)
            if ways >= CONFIDENCE * 2 ** len(ordered):
                return value
        return unknown


def spread(base: Sequence[float]) -> float:
    """Return how far the base's figures lie apart, as a share of their median."""
    return (max(base) - min(base)) / median(base)
