"""The outcome of a message: what is to be stored, answered and pushed. Nothing of it has happened yet."""

from dataclasses import dataclass, field

from wakupush.model.entries import Entry
from wakupush.model.events import Event
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PublicKey
from wakupush.server.engine.message import Deferred, Part


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is to be sealed."""

    recipient: PublicKey
    #: The server's key that signs it.
    signer: PublicKey
    type: Type.ValueType
    inner: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one message."""

    entry: Entry
    events: tuple[Event, ...]
    replies: tuple[Reply, ...] = ()
    #: What the kind of the message stores: a value of its own.
    effect: object = None
    #: Of a message that is handled later; it has no other effect now.
    deferred: Deferred | None = None
    #: Of the deliveries on which the replies report.
    delivery_keys: frozenset[bytes] = frozenset()
    #: Of a message in segments: a part that waits for the others, or the one that completed the message: then all its
    #: parts are deleted.
    waiting_part: Part | None = None
    last_part: Part | None = None
