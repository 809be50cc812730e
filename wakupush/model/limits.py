"""Limits on how much may happen within a time, and the chance with which a limit lets something through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

#: Names of what is limited.
FIRST_REGISTRATIONS: Final = "first_registrations"
INSTALLATIONS: Final = "installations"
REPEATS: Final = "repeats"
DEVICE_PUSHES: Final = "device_pushes"
ANSWERS: Final = "answers"
USER_ANSWERS: Final = "user_answers"
UNOPENED: Final = "unopened"
TOPIC_MESSAGES: Final = "topic_messages"
NAMES: Final = (
    *(FIRST_REGISTRATIONS, INSTALLATIONS, REPEATS, DEVICE_PUSHES, ANSWERS, USER_ANSWERS, UNOPENED, TOPIC_MESSAGES),
)

MINUTE: Final = 60
HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing to be counted, and how much of its kind is allowed within a time."""

    name: str
    #: The most that is allowed, in the unit of `cost`; at least 1.
    most: int
    #: Length of that time.
    seconds: int
    #: Hash of the envelope (32 bytes) that it is counted for, and the position in it: it is counted once, however often
    #: a transaction is repeated.
    message: bytes
    position: int = 0
    #: Distinguishes things that are limited separately. No secret, and nothing that a stranger chooses; who does choose
    #: it, as keys of users are, is let through by `after` first, which bounds how many counters there are.
    key: str = ""
    #: At least 1.
    cost: int = 1
    #: A limit of the same message: only what it lets through is counted for this one.
    after: Limit | None = None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Which limits allow what was counted."""

    told: Mapping[Limit, bool] = field(default_factory=dict)
    #: The verdict of limits that were not asked.
    otherwise: bool = True

    def allow(self, limit: Limit) -> bool:
        """Return whether a limit allows it."""
        return self.told.get(limit, self.otherwise)


@dataclass(frozen=True, slots=True)
class Demand:
    """What was asked of a limit within its time, this one included."""

    number: float
    cost: float


def demand(now: Demand, before: Demand, elapsed: float) -> Demand:
    """Return what was asked within the time of a limit up to now.

    Args:
        now: in the current window.
        before: in the previous window.
        elapsed: the share of the current window that is over, 0 to 1.
    """
    share = 1.0 - elapsed
    return Demand(now.number + before.number * share, now.cost + before.cost * share)


def chance(limit: Limit, asked: Demand) -> float:
    """Return the probability with which a limit lets something through: capacity divided by demand.

    It is above 0, however much others ask for, and 1 while all that is asked for fits. The capacity is shared twice, by
    cost and by heads, and the larger share counts: a client that asks for much takes nothing from those that ask for
    little. So on average at most twice the limit is let through. Once, while a flood begins, it is more: by the
    logarithm of the factor by which the flood exceeds the limit.
    """
    return min(1.0, max(limit.most / asked.cost, limit.most / (asked.number * limit.cost)))
