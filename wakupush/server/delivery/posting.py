"""A delivery under our lease, what is done with it, and the outcome of its attempt."""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from wakupush.model.deliveries import Delivery, Settlement
from wakupush.model.failures import Failure, Route
from wakupush.model.registrations import Target

#: Final failures, by delivery key.
Failed = dict[bytes, Failure]


@dataclass(slots=True, eq=False)
class Reporter:
    """Says who reports an attempt to Celery, and so to Flower: Celery itself, or the threads that post.

    Celery reports the attempt of the delivery whose id its task has, until the task ends. Threads report all others.
    """

    #: Whether Flower sees the attempt from its beginning. A first attempt is part of a larger task: it is reported only
    #: if another one follows.
    from_beginning: bool = False
    #: Whether the task has the delivery's id.
    by_task: bool = False
    _lock: Lock = field(default_factory=Lock)
    _has_ended: bool = False
    _settlement: Settlement | None = None

    def hand_over(self, settlement: Settlement) -> bool:
        """Leave the outcome of the attempt to the task; return False if a thread must report it."""
        if not self.by_task:
            return False
        with self._lock:
            if not self._has_ended:
                self._settlement = settlement
            return not self._has_ended

    def end_task(self) -> Settlement | None:
        """Return the outcome that the task reports, None if it is not known; a later one is reported by its thread."""
        with self._lock:
            self._has_ended = True
            return self._settlement


#: Of attempts that beat enqueued together with one that has the task's id; and of first attempts.
DUE_ATTEMPT: Final = Reporter(from_beginning=True)
FIRST_ATTEMPT: Final = Reporter()


@dataclass(frozen=True, slots=True)
class Posting:
    """A delivery and where it goes; without a target its device is gone."""

    delivery: Delivery
    target: Target | None
    reporter: Reporter = FIRST_ATTEMPT

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
    #: Postings that gorush refused together: none was taken or stored, and they are to be posted in smaller posts.
    refused: list[Posting] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Work:
    """What is done with postings in the slots."""

    #: Makes a post, which may be a probe.
    attempt: Callable[[list[Posting], bool], Attempted]
    #: Leaves some to beat, without an attempt.
    put_back: Callable[[list[Posting]], None]
    #: Postings in one post at most.
    batch_size: int
    #: Monotonic seconds after which no post is begun: it might outlast the lease.
    until: float
