"""Messages in parts: SegmentMessage, plain ones only (no parity parts)."""

from dataclasses import dataclass, field

from wakupush.model.failures import Failure
from wakupush.pb.segment_pb2 import SegmentMessage
from wakupush.protocol import wire
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256

_HASH_BYTES = 32
#: Bytes of a whole message that a segment can name; what is kept of one is far less.
_MOST_BYTES = 2**32


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a larger message."""

    #: Keccak-256 of the whole message, 32 bytes.
    entire_message_hash: bytes
    #: From 0.
    index: int
    count: int
    payload: bytes = field(repr=False)
    #: Bytes of the whole message, to which the joined parts are cut; 0: all of them.
    original_length: int = 0


def parse(data: bytes) -> Segment | None:
    """Return `data` as a segment, or None if it is not one.

    An ApplicationMetadataMessage parses as a SegmentMessage too: it is one only with a non-empty payload and a hash
    of 32 bytes.

    Raises:
        Refused: PAYLOAD_MALFORMED for a segment whose index is not below its count, or that names an absurd length.
    """
    try:
        message = wire.parse(SegmentMessage, data, malformed=Failure.PAYLOAD_MALFORMED)
    except Refused:
        return None
    if not message.payload or len(message.entire_message_hash) != _HASH_BYTES:
        return None
    if message.index >= message.segments_count or message.original_payload_length > _MOST_BYTES:
        raise Refused(Failure.PAYLOAD_MALFORMED)
    return Segment(
        message.entire_message_hash,
        message.index,
        message.segments_count,
        message.payload,
        message.original_payload_length,
    )


def split(data: bytes, size: int) -> list[bytes]:
    """Return the SegmentMessages that carry `data` in parts of at most `size` bytes.

    Clients of 2026 refuse a message of one segment: `data` has to be larger than `size`.
    """
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    digest = keccak256(data)
    return [
        SegmentMessage(
            entire_message_hash=digest, index=index, segments_count=len(parts), payload=part
        ).SerializeToString()
        for index, part in enumerate(parts)
    ]


def join(segments: list[Segment]) -> bytes:
    """Return the whole message of all its segments, in any order.

    Raises:
        Refused: SEGMENT_INCOMPLETE if one is missing, PAYLOAD_MALFORMED if the whole has another hash, or should be
            longer than it is.
    """
    parts = {segment.index: segment.payload for segment in segments}
    if not segments or len(parts) != segments[0].count:
        raise Refused(Failure.SEGMENT_INCOMPLETE)
    whole = b"".join(parts[index] for index in sorted(parts))
    length = max(segment.original_length for segment in segments) or len(whole)
    if length > len(whole):
        raise Refused(Failure.PAYLOAD_MALFORMED)
    whole = whole[:length]
    if keccak256(whole) != segments[0].entire_message_hash:
        raise Refused(Failure.PAYLOAD_MALFORMED)
    return whole
