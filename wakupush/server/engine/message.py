"""A message of a task, and what is in it."""

from dataclasses import dataclass

from wakupush.model.entries import Entry
from wakupush.model.failures import Failure
from wakupush.model.queues import Queue
from wakupush.protocol.application import Opened
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.segments import Segment


class Readable:
    """The content of a message that its kind decides on; each kind has a subclass."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of a message."""

    segment: Segment
    transport_signer: PublicKey | None
    #: The server's key that it was sealed to; None if it came on a topic whose key is public.
    recipient: PublicKey | None

    @property
    def signer(self) -> bytes:
        """The signer under which it is stored: the compressed key, empty if it is unsigned."""
        return self.transport_signer.compressed if self.transport_signer else b""

    @property
    def name(self) -> tuple[bytes, bytes]:
        """The name of the message that it is a part of: its signer and its hash (32 bytes)."""
        return self.signer, self.segment.entire_message_hash


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A message that another queue handles."""

    queue: Queue
    signer: PublicKey


@dataclass(frozen=True, slots=True)
class Deferred:
    """A message that its kind handles later: once the key of its topic is derived, or at a random time."""

    for_key: bool


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message of a known sender whose content cannot be read; nobody is answered."""

    failure: Failure


Content = Failure | Part | Elsewhere | Deferred | Malformed | Readable


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a task."""

    entry: Entry
    content: Content
    #: Of a message in segments: the part that completed it.
    last_part: Part | None = None
    #: What `content` was read from; None of what is no message, or large, and of one in segments.
    opened: Opened | None = None
