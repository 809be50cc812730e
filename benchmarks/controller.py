"""The decisions of KEDA and the HorizontalPodAutoscaler, by their formulas."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

#: Of kube-controller-manager: a ratio that is off by less changes nothing.
TOLERANCE = 0.1


@dataclass(frozen=True)
class Behaviour:
    """The `behavior` of a HorizontalPodAutoscaler; times in seconds."""

    least: int
    most: int
    #: The highest recommendation of this time counts when scaling down.
    stabilisation: float
    #: In one period: up by as many per cent or pods, whatever is more; down by as many pods.
    up_period: float
    up_percent: float
    up_pods: int
    down_period: float
    down_pods: int


@dataclass
class Autoscaler:
    """Decides about the replicas of one pool; times are any clock's seconds."""

    behaviour: Behaviour
    _recommended: list[tuple[float, int]] = field(default_factory=list)
    #: When replicas were changed, and by how many.
    _changes: list[tuple[float, int]] = field(default_factory=list)

    def decide(self, now: float, current: int, triggers: list[tuple[float, float]]) -> int:
        """Return how many replicas there should be.

        Args:
            now: never smaller than before.
            current: replicas that there are, those that start among them.
            triggers: the value of each, of all pods together, and how much of it is for one pod (`AverageValue`).
        """
        limits = self.behaviour
        wanted = max(_recommendation(current, value, threshold) for value, threshold in triggers)
        wanted = min(limits.most, max(limits.least, wanted))
        self._recommended.append((now, wanted))
        self._recommended = [each for each in self._recommended if now - each[0] <= limits.stabilisation]
        if wanted < current:
            wanted = min(current, max(count for _, count in self._recommended))
        replicas = min(max(wanted, self._lowest(now, current)), self._highest(now, current))
        if replicas != current:
            self._changes.append((now, replicas - current))
        return replicas

    def _highest(self, now: float, current: int) -> int:
        limits = self.behaviour
        begun_with = current - self._changed(now, limits.up_period, up=True)
        return max(math.ceil(begun_with * (1 + limits.up_percent / 100)), begun_with + limits.up_pods)

    def _lowest(self, now: float, current: int) -> int:
        limits = self.behaviour
        return current - self._changed(now, limits.down_period, up=False) - limits.down_pods

    def _changed(self, now: float, period: float, *, up: bool) -> int:
        return sum(by for at, by in self._changes if now - at < period and (by > 0) is up)


def _recommendation(current: int, value: float, threshold: float) -> int:
    if current and abs(value / (threshold * current) - 1) <= TOLERANCE:
        return current
    return math.ceil(value / threshold)
