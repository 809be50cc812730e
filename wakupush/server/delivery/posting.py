"""A delivery under our lease, what is done with it, and the outcome of its attempt."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from wakupush.model.deliveries import Delivery, Settlement
from wakupush.model.failures import Failure, Route
from wakupush.model.registrations import Target

#: Final failures, by delivery key.
Failed = dict[bytes, Failure]


@dataclass(slots=True)
class Lead:
    """The delivery whose id a task has: the task shows its outcome or, once it has left, the thread that stores it."""

    _lock: Lock = field(default_factory=Lock)
    _left: bool = False
    _settlement: Settlement | None = None

    def hand_over(self, settlement: Settlement) -> bool:
        """Hand the outcome of the attempt over to the task; return False if it has left."""
        with self._lock:
            if not self._left:
                self._settlement = settlement
            return not self._left

    def leave(self) -> Settlement | None:
        """Return the outcome of the attempt, None if it is not known; nothing can be handed over any more."""
        with self._lock:
            self._left = True
            return self._settlement


@dataclass(frozen=True, slots=True)
class Posting:
    """A delivery and where it goes; without a target its device is gone."""

    delivery: Delivery
    target: Target | None
    #: Whether Flower shows this attempt. First attempts inside batches are shown if they fail for the time being.
    shown: bool = False
    #: Given if the task that makes this attempt has the delivery's id.
    lead: Lead | None = None

    @property
    def proven(self) -> bool:
        """Whether a push once reached the device."""
        return self.target is not None and self.target.proven


@dataclass(frozen=True, slots=True)
class Attempted:
    """The outcomes of a post."""

    #: Failures that say something about their platform, as gorush answered them.
    platform_failures: list[Failure] = field(default_factory=list)
    #: Of each posting, as they were stored: reports of gorush's webhook count, too. Then what they say of the route.
    outcomes: list[Failure | None] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    failed: Failed = field(default_factory=dict)
    #: Postings that gorush refused together: none was taken or stored, and each is to be posted alone.
    refused: list[Posting] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with postings in the slots."""

    #: Makes a post, which may be a probe.
    attempt: Callable[[list[Posting], bool], Attempted]
    #: Leaves some to the schedule, without an attempt.
    put_back: Callable[[list[Posting]], None]
    #: Postings in one post at most.
    batch_size: int
    #: Monotonic seconds after which no post is begun except the first of a lane, which every lease covers.
    until: float
