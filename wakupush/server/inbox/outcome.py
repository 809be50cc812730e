"""What is decided on a message; nothing of it has happened yet."""

from dataclasses import dataclass, field

from wakupush.model.deliveries import Delivery, RememberedRequest
from wakupush.model.entries import Entry
from wakupush.model.events import Event
from wakupush.model.failures import Failure
from wakupush.model.limits import Limit
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Change, Target
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.request import Request
from wakupush.server.inbox.content import OpenedRequest, Part, Postponed


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is to be sealed."""

    recipient: PublicKey
    type: Type.ValueType
    inner: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Admission:
    """A notification that is to be pushed, unless it is known already."""

    delivery: Delivery
    target: Target
    #: The event to write if it is not known.
    event: Event


@dataclass(frozen=True, slots=True)
class DecidedRequest:
    """The answer to the sender of a push request."""

    sender: PublicKey
    #: Of the application message, 32 bytes.
    message_id: bytes
    request: Request
    #: For each item what is reported to its sender, None for success.
    failures: tuple[Failure | None, ...]
    #: For each item the delivery that it waits for.
    delivery_keys: tuple[bytes | None, ...]
    #: For each item that looks as if it were pushed now, the platform.
    platforms: tuple[Platform | None, ...]
    #: What is remembered of it, if it came before.
    before: RememberedRequest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is to be written, answered and pushed for a message."""

    entry: Entry
    events: tuple[Event, ...]
    #: The limits that it was counted for.
    limits: tuple[Limit, ...] = ()
    reply: Reply | None = None
    #: Of a registration: what is to be stored, and the user (hash of 64 bytes) whose query topics are to be watched.
    change: Change | None = None
    listening: bytes | None = None
    #: Of a push request.
    request: DecidedRequest | None = None
    admissions: tuple[Admission, ...] = ()
    #: A request that expired and is remembered, so that it is never pushed.
    expired: OpenedRequest | None = None
    #: Of a message in segments: a part that waits for the others, or that completed the message: these are forgotten.
    keep: Part | None = None
    forget: Part | None = None
    #: Of a query: it is to be looked at later, and has no other effect now.
    postponed: Postponed | None = None
