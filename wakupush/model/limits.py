"""Limits on how much may happen within a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

#: Names of the limits.
FIRST_REGISTRATIONS: Final = "first_registrations"
INSTALLATIONS: Final = "installations"
REPEATS: Final = "repeats"
DEVICE_PUSHES: Final = "device_pushes"
ANSWERS: Final = "answers"
USER_ANSWERS: Final = "user_answers"
USER_QUERIES: Final = "user_queries"
UNOPENED: Final = "unopened"
TOPIC_MESSAGES: Final = "topic_messages"
NAMES: Final = (
    *(FIRST_REGISTRATIONS, INSTALLATIONS, REPEATS, DEVICE_PUSHES),
    *(ANSWERS, USER_ANSWERS, USER_QUERIES, UNOPENED, TOPIC_MESSAGES),
)

MINUTE: Final = 60
HOUR: Final = 3600
#: Answers to repeats of the same message a minute. They all go to the same client, which needs one.
REPEATS_PER_MINUTE: Final = 3


#: The identity of a limit: its name, the message (hash of its envelope, 32 bytes) and the position in it.
LimitId = tuple[str, bytes, int]


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
    #: Distinguishes things that are limited separately. It is no secret, and no stranger chooses it. Where strangers do
    #: choose it, as keys of users, `after` comes first and bounds how many counters there are.
    key: str = ""
    #: At least 1.
    cost: int = 1
    #: How many, by number, are let through within the time on average, whatever they cost.
    floor: int = 0
    #: A limit of the same message: only what it lets through is counted for this one.
    after: Limit | None = None

    @property
    def id(self) -> LimitId:
        """The identity of this limit."""
        return self.name, self.message, self.position


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Which limits hold something back; all others let it through."""

    held_back: frozenset[LimitId] = frozenset()

    def allow(self, name: str, message: bytes, position: int = 0) -> bool:
        """Return whether the limit of this name, for this message and position, lets it through."""
        return (name, message, position) not in self.held_back

    def hold_back_all(self, name: str, message: bytes, positions: Collection[int]) -> bool:
        """Return whether there are positions, and the limit of this name lets none of them through."""
        return bool(positions) and not any(self.allow(name, message, position) for position in positions)
