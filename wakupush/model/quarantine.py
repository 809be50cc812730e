"""The quarantine: messages that failed alone, as an operator sees them."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineSelection:
    """Which quarantined messages are meant; a field that is None sets no condition."""

    #: Message hashes, 32 bytes each.
    keys: list[bytes] | None = None
    #: Name of a queue.
    queue: str | None = None
    reason: str | None = None
    #: They were put into quarantine between these times, both included.
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class QuarantinedMessage:
    """The fields of a quarantined message that an operator may see: neither its content nor its user."""

    #: 32 bytes.
    message_hash: bytes
    #: The name of the queue that it came through.
    queue: str
    #: The name of the last exception, or that the process died.
    reason: str
    attempts: int
    #: Of its ciphertext.
    bytes: int
    pubsub_topic: str
    seen_at: datetime
    quarantined_at: datetime
    #: When it was put into its queue again, if it has not been handled since.
    retried_at: datetime | None
    #: Whether it is a registration of a known installation: then it is deleted when that installation unregisters.
    is_owned: bool

    @property
    def trace_id(self) -> str:
        """Its name in logs and events."""
        return self.message_hash[:8].hex()
