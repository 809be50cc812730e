"""A delivery under a lease of ours, what is done with it, and what its attempt brought."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from wakupush.model.deliveries import Delivery, Settlement
    from wakupush.model.failures import Failure
    from wakupush.model.registrations import Target

#: Failures by delivery key, as far as they are final.
Failed = dict[bytes, "Failure"]


@dataclass(slots=True)
class Lead:
    """The delivery whose id a task has: the task shows what its attempt came to or, once it has left, who stores it."""

    _lock: Lock = field(default_factory=Lock)
    _left: bool = False
    _settlement: Settlement | None = None

    def tell(self, settlement: Settlement) -> bool:
        """Hand what the attempt came to over to the task; say whether it is still there."""
        with self._lock:
            if not self._left:
                self._settlement = settlement
            return not self._left

    def leave(self) -> Settlement | None:
        """Return what the attempt came to, None if that is not known; nothing can be handed over any more."""
        with self._lock:
            self._left = True
            return self._settlement


@dataclass(frozen=True, slots=True)
class Posting:
    """A delivery and where it goes; without a target its device is gone."""

    delivery: Delivery
    target: Target | None
    #: Whether Flower shows this attempt. The first ones inside batches are shown if they fail in passing.
    shown: bool = False
    #: If the task that makes this attempt has the delivery's id.
    lead: Lead | None = None


@dataclass(frozen=True, slots=True)
class Attempted:
    """What an attempt brought."""

    #: Failures that speak of their platform, as gorush told them.
    telling: list[Failure] = field(default_factory=list)
    #: Of each posting, as they were stored: what gorush's webhook told counts, too.
    outcomes: list[Failure | None] = field(default_factory=list)
    failed: Failed = field(default_factory=dict)
    #: What gorush refused together: nothing of it was taken or stored, and each is to be posted by itself.
    refused: list[Posting] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with postings in the lanes."""

    #: Makes a post, which may be a probe.
    attempt: Callable[[list[Posting], bool], Attempted]
    #: Leaves some to the schedule, without an attempt.
    put_back: Callable[[list[Posting]], None]
    #: Postings in one post at most.
    batch_size: int
    #: Monotonic seconds after which no post is begun but the first of a lane, which every lease covers.
    until: float
