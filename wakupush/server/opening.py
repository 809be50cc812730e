"""Opening messages, and putting together those that came in segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wakupush.failures import Failure
from wakupush.protocol import application, payload, segments
from wakupush.protocol.application import Opened
from wakupush.protocol.errors import Refused
from wakupush.protocol.segments import Segment
from wakupush.state import message_segments

if TYPE_CHECKING:
    from psycopg import Connection

    from wakupush.protocol.keys import PrivateKey, PublicKey
    from wakupush.queues import Entry
    from wakupush.settings import LimitSettings


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of a message."""

    segment: Segment
    transport_signer: PublicKey | None

    @property
    def signer(self) -> bytes:
        """Under whom it is kept: the compressed key, empty if there is none."""
        return self.transport_signer.compressed if self.transport_signer else b""

    @property
    def group(self) -> tuple[bytes, bytes]:
        """What its message is known by."""
        return self.signer, self.segment.entire_message_hash


#: What is inside an envelope.
Content = Opened | Part | Failure


def open_asymmetric(entry: Entry, private_key: PrivateKey) -> Content:
    """Open a message of the personal or the partitioned topic."""
    if entry.message.version != payload.VERSION:
        return Failure.NOT_FOR_US
    try:
        return _read(payload.open_asymmetric(entry.message.payload, private_key))
    except Refused as refused:
        return refused.failure


def open_symmetric(entry: Entry, keys: list[bytes]) -> Content:
    """Open a message of a query topic with the first of the topic's keys (32 bytes each) that fits."""
    if entry.message.version != payload.VERSION:
        return Failure.NOT_FOR_US
    for key in keys:
        try:
            return _read(payload.open_symmetric(entry.message.payload, key))
        except Refused as refused:
            if refused.failure is not Failure.NOT_FOR_US:
                return refused.failure
    return Failure.NOT_FOR_US


def put_together(
    connection: Connection, opened: list[tuple[Entry, Content]], limits: LimitSettings
) -> list[tuple[Entry, Content]]:
    """Keep the parts of messages in segments; what is complete takes the place of its last part.

    The parts stay until `forget_parts`: the message may have to be passed on to another queue first.
    """
    groups = {content.group for _, content in opened if isinstance(content, Part)}
    if not groups:
        return opened
    message_segments.lock(connection, groups)
    return [
        (entry, _keep(connection, content, limits) if isinstance(content, Part) else content)
        for entry, content in opened
    ]


def _keep(connection: Connection, part: Part, limits: LimitSettings) -> Content:
    usage = message_segments.usage(connection, part.signer)
    size = len(part.segment.payload)
    if (
        part.segment.count > limits.segments
        or usage.signer_parts >= limits.segments_per_signer
        or usage.signer_size + size > limits.segment_bytes_per_signer
        or usage.parts >= limits.segments_kept
        or usage.size + size > limits.segment_bytes_kept
    ):
        return Failure.SEGMENT_LIMIT
    parts = message_segments.add(connection, part.signer, part.segment)
    if not parts:
        return part
    whole = _join(part, parts)
    if isinstance(whole, Failure):
        message_segments.remove(connection, *part.group)
    return whole


def _join(part: Part, parts: list[Segment]) -> Opened | Failure:
    try:
        whole = _read(payload.Payload(segments.join(parts), part.transport_signer))
    except Refused as refused:
        return refused.failure
    # A segment in a segment is nobody's message.
    return whole if isinstance(whole, Opened) else Failure.PAYLOAD_MALFORMED


def forget_parts(connection: Connection, part: Part) -> None:
    """Delete the parts of a message that is being handled."""
    message_segments.remove(connection, *part.group)


def _read(opened: payload.Payload) -> Opened | Part:
    content = application.read(opened)
    return Part(content, opened.signer) if isinstance(content, Segment) else content
