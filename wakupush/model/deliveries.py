"""Deliveries and their state machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Final
from uuid import UUID

from wakupush.model.failures import Failure
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import AppPlatform, Platform
from wakupush.model.registrations import Address, Installation

#: Deliveries past their time to live that one task ends at most.
EXPIRED_MOST: Final = 1000
#: The lease of a delivery that no worker posts.
NO_LEASE: Final = UUID(int=0)


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    #: To be attempted when its time has come.
    PENDING = "pending"
    #: A worker is posting it, under a lease.
    POSTING = "posting"
    #: gorush took it.
    DELIVERED = "delivered"
    #: It cannot be delivered; a new envelope may try again.
    FAILED = "failed"
    #: It was still undelivered at the end of its time to live; an operator can send it again.
    EXPIRED = "expired"
    #: No attempt is left; an operator can send it again.
    DEAD_LETTER = "dead_letter"

    @property
    def is_final(self) -> bool:
        """Whether beat does nothing more about it."""
        return self not in {DeliveryState.PENDING, DeliveryState.POSTING}

    @property
    def is_dead_letter(self) -> bool:
        """Whether its content is kept for an operator to send it again."""
        return self in {DeliveryState.EXPIRED, DeliveryState.DEAD_LETTER}


#: Every legal transition. A new envelope takes up again what failed, expired or ran out of attempts. An operator sends
#: dead letters again. gorush's webhook may report that a delivery which counted as delivered has failed.
TRANSITIONS: Mapping[DeliveryState, frozenset[DeliveryState]] = {
    DeliveryState.PENDING: frozenset({DeliveryState.POSTING, DeliveryState.EXPIRED}),
    DeliveryState.POSTING: frozenset(
        {
            DeliveryState.PENDING,
            DeliveryState.DELIVERED,
            DeliveryState.FAILED,
            DeliveryState.EXPIRED,
            DeliveryState.DEAD_LETTER,
        }
    ),
    DeliveryState.DELIVERED: frozenset({DeliveryState.FAILED}),
    DeliveryState.FAILED: frozenset({DeliveryState.POSTING}),
    DeliveryState.EXPIRED: frozenset({DeliveryState.POSTING, DeliveryState.PENDING}),
    DeliveryState.DEAD_LETTER: frozenset({DeliveryState.POSTING, DeliveryState.PENDING}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A notification on its way to a device."""

    #: See `wakupush.protocol.request.delivery_key`, 32 bytes.
    delivery_key: bytes
    installation: Installation
    #: The app that the device registered for, see `AppPlatform`.
    app: str = ""
    platform: Platform
    notification_type: NotificationType
    chat_id: bytes = field(repr=False)
    message: bytes = field(repr=False)
    #: Which attempt this is, from 1.
    attempt: int
    #: The worker that posts it holds this lease.
    lease: UUID
    #: The Celery task whose states Flower shows for all attempts.
    task_id: str
    #: None if it was a dead letter for more than a day.
    trace_id: str | None
    #: When ingest saw the request, and when the delivery expires, in seconds since the epoch.
    seen: float
    expires_at: float
    #: The digests that the notification named; None if they are not stored.
    address: Address | None = field(default=None, repr=False)
    #: Why the previous attempt failed; None for the first one.
    failure: Failure | None = None
    #: Whether its time to live is over.
    expired: bool = False

    @property
    def app_platform(self) -> AppPlatform:
        """The app and the platform that it goes to."""
        return AppPlatform(self.app, self.platform)


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A delivery whose next attempt is to be enqueued."""

    delivery_key: bytes
    app_platform: AppPlatform
    #: Attempts that were begun so far.
    begun: int
    #: Why the last one failed.
    failure: Failure | None
    task_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The outcome of an attempt."""

    delivery: Delivery
    state: DeliveryState
    failure: Failure | None = None
    #: Seconds until the next attempt, for PENDING.
    wait: float | None = None
    #: False if the attempt does not count: it was known to have little chance, or was not made.
    counted: bool = True
    #: Version of the registration that was tried.
    version: int | None = None
    #: Whether its device token was doubted lately, and whether the platform ever took a push to it.
    suspected: bool = False
    proven: bool = False


def attempt_argument(attempt: int, most: int, count: int, app_platform: AppPlatform, failure: Failure | None) -> str:
    """Return the text that is shown as the argument of an attempt's task; it holds no secret.

    Args:
        most: attempts of a delivery.
        app_platform: of all of them.
        failure: of the previous attempt; None if that was deferred.
    """
    why = f", after {failure.label}" if failure else ", after waiting" if attempt > 1 else ""
    together = f", {count} together" if count > 1 else ""
    return f"({app_platform.title}, attempt {attempt} of {most}{why}{together})"


@dataclass(frozen=True, slots=True)
class RememberedRequest:
    """The remembered outcome of a push request."""

    #: For each item whether its sender was told of a success.
    succeeded: Sequence[bool]
    #: The Monday (UTC) of the week in which it was admitted first; None if it has no row yet.
    week: date | None = None
