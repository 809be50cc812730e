"""What is in an envelope."""

from dataclasses import dataclass, field

from wakupush.model.entries import Entry
from wakupush.model.failures import Failure
from wakupush.model.queues import Queue
from wakupush.model.registrations import Address, Installation
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.request import Request
from wakupush.protocol.segments import Segment


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of a message."""

    segment: Segment
    transport_signer: PublicKey | None
    #: Whether it came on a query topic, whose key is no secret.
    on_query_topic: bool = False

    @property
    def signer(self) -> bytes:
        """The signer under which it is kept: the compressed key, empty if it is unsigned."""
        return self.transport_signer.compressed if self.transport_signer else b""

    @property
    def name(self) -> tuple[bytes, bytes]:
        """The name of the message that it is a part of: its signer and its hash (32 bytes)."""
        return self.signer, self.segment.entire_message_hash


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A message that another queue handles."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class Postponed:
    """A query that waits: for the key of its topic, or for its turn, as its answer would be too much now."""

    for_key: bool


@dataclass(frozen=True, slots=True)
class RefusedContent:
    """A message of a known sender, whose content is refused."""

    signer: PublicKey
    failure: Failure
    #: Of a registration, 64 bytes.
    request_id: bytes = b""


@dataclass(frozen=True, slots=True)
class OpenedRegistration:
    """A registration, as its client sealed it for the server."""

    client: PublicKey
    #: 64 bytes.
    request_id: bytes
    #: Keyed digest of `request_id`, 16 bytes.
    request_digest: bytes
    message: PushNotificationRegistration = field(repr=False)
    installation: Installation


@dataclass(frozen=True, slots=True)
class OpenedQuery:
    """A query."""

    asker: PublicKey
    #: Of the application message, 32 bytes.
    message_id: bytes
    #: Of the users that it asks for, 64 bytes each.
    key_hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class OpenedRequest:
    """A push request."""

    sender: PublicKey
    #: Of the application message, 32 bytes.
    message_id: bytes
    request: Request
    #: For each of its items; None if the item cannot name a device.
    addresses: tuple[Address | None, ...]


Content = Failure | Part | Elsewhere | Postponed | RefusedContent | OpenedRegistration | OpenedQuery | OpenedRequest


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a task."""

    entry: Entry
    content: Content
    #: Of a message in segments: the part that completed it.
    last_part: Part | None = None
