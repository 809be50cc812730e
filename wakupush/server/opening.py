"""Opening messages, and putting together those that came in segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from wakupush.failures import Failure
from wakupush.protocol import application, payload, segments
from wakupush.protocol.application import Opened
from wakupush.protocol.errors import Refused
from wakupush.protocol.sealing import SEAL_BYTES
from wakupush.protocol.segments import Segment
from wakupush.state import ledger, message_segments

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import Connection

    from wakupush.protocol.keys import PrivateKey, PublicKey
    from wakupush.queues import Entry
    from wakupush.settings import LimitSettings

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Part:
    """A segment of a message."""

    segment: Segment
    transport_signer: PublicKey | None

    @property
    def signer(self) -> bytes:
        """Under whom it is kept: the compressed key, empty if there is none."""
        return self.transport_signer.compressed if self.transport_signer else b""


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
    connection: Connection,
    opened: list[tuple[Entry, Content]],
    limits: LimitSettings,
    key: bytes,
    reserve: Callable[[int], None],
) -> list[tuple[Entry, Content]]:
    """Keep the parts of messages in segments; what is complete takes the place of its last part.

    Parts that were processed before are left out: their message may be done. Those that are kept stay until
    `forget_parts`, as the whole may have to be passed on to another queue first, or until there are too many: then the
    oldest go, so that a flood, which nobody completes, holds up no message whose parts come one after the other.

    Args:
        connection: in a transaction.
        opened: contents of envelopes.
        limits: of segments.
        key: seals the parts while they are kept, 32 bytes.
        reserve: is told of the bytes of a whole message before it is loaded.
    """
    parts = [(entry, content) for entry, content in opened if isinstance(content, Part)]
    if not parts:
        return opened
    message_segments.lock(connection, {part.signer for _, part in parts})
    known = ledger.known(connection, [entry for entry, _ in parts])
    together = [
        (entry, _keep(connection, content, limits, key, reserve) if isinstance(content, Part) else content)
        for entry, content in opened
        if entry.hash not in known
    ]
    trimmed = message_segments.trim(
        connection,
        parts_per_signer=limits.segments_per_signer,
        bytes_per_signer=limits.segment_bytes_per_signer,
        parts=limits.segments_kept,
        bytes=limits.segment_bytes_kept,
    )
    if trimmed:
        log.info("segments_dropped", segments=trimmed)
    return together


def _keep(
    connection: Connection, part: Part, limits: LimitSettings, key: bytes, reserve: Callable[[int], None]
) -> Content:
    segment = part.segment
    # All parts of a message but the last are of one size.
    sealed = len(segment.payload) + SEAL_BYTES
    if segment.count > limits.segments or segment.count * sealed > limits.segment_bytes_per_signer:
        return Failure.SEGMENT_LIMIT
    count, size = message_segments.add(connection, part.signer, segment, key)
    if count < segment.count:
        return part
    reserve(size)
    whole = join(part, message_segments.parts(connection, part.signer, segment, key))
    if isinstance(whole, Failure):
        forget_parts(connection, part)
    return whole


def join(part: Part, parts: list[Segment]) -> Opened | Failure:
    """Return the message that a part completes.

    Args:
        part: the last one to come.
        parts: all of them, by distinct indexes.
    """
    try:
        whole = _read(payload.Payload(segments.join(parts), part.transport_signer))
    except Refused as refused:
        return refused.failure
    # A segment in a segment is nobody's message.
    return whole if isinstance(whole, Opened) else Failure.PAYLOAD_MALFORMED


def forget_parts(connection: Connection, part: Part) -> None:
    """Delete the parts of a message that is being handled."""
    message_segments.remove(connection, part.signer, part.segment.entire_message_hash)


def _read(opened: payload.Payload) -> Opened | Part:
    content = application.read(opened)
    return Part(content, opened.signer) if isinstance(content, Segment) else content
