"""Dead letters: deliveries that ran out of attempts or of time, as an operator sees them."""

from dataclasses import dataclass
from datetime import datetime

from wakupush.model.deliveries import DeliveryState
from wakupush.model.failures import Failure
from wakupush.model.platforms import AppPlatform, Platform

#: The place of a dead letter in the order of all: when it ended, and its key.
Position = tuple[datetime, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters are meant; a field that is None sets no condition."""

    keys: list[bytes] | None = None
    reason: Failure | None = None
    platform: Platform | None = None
    #: They ended between these times, both included.
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The fields of a dead letter that an operator may see: neither its content nor its user."""

    delivery_key: bytes
    state: DeliveryState
    app_platform: AppPlatform
    #: The label of a failure.
    reason: str | None
    #: How many attempts were begun.
    attempts: int
    seen_at: datetime
    finished_at: datetime
    expires_at: datetime
    #: None once the day on which it ended is over.
    trace_id: str | None


@dataclass(frozen=True, slots=True)
class DeadLetterDevice:
    """The state of a dead letter's device now."""

    registered: bool
    token_died_at: datetime | None
    suspicions: int
    #: Whether its registration is still the one of the last attempt; None if that is not known.
    unchanged: bool | None


@dataclass(frozen=True, slots=True)
class PastEvent:
    """A delivery event of the message that a dead letter came with."""

    time: datetime
    kind: str
    #: The name of the queue that the message came through.
    queue: str
    worker: str
    app: str | None
    platform: str | None
    failure: str | None
    reason: str | None
    attempt: int | None
    #: How many notifications of the message it stands for.
    count: int
    key_pseudonym: bytes | None
    installation_pseudonym: bytes | None
