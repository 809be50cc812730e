"""Protobuf of strangers: the fields of a message are counted before it is parsed.

A parsed item takes a hundred bytes of memory however short it is; on the wire an item can be two bytes.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from wakupush.model.failures import Failure
from wakupush.protocol.errors import Refused

M = TypeVar("M", bound=Message)

#: Fields that a message without lists has at most, those of newer clients included.
PLAIN_FIELDS: Final = 64

_VARINT, _LENGTH = 0, 2
#: Bytes of a value by its wire type. The two ends of a group have no value; its members count as fields.
_FIXED_BYTES: Final[Mapping[int, int]] = {1: 8, 3: 0, 4: 0, 5: 4}
_MOST_VARINT_BYTES: Final = 10


def parse(
    kind: type[M], data: bytes, *, malformed: Failure, most_fields: int = PLAIN_FIELDS, too_many: Failure | None = None
) -> M:
    """Return a message.

    Args:
        malformed: the failure if it is not such a message.
        most_fields: how many fields it may have, unknown ones, repeated ones and those in unknown groups each counted.
        too_many: what it is refused with if it has more fields; `malformed` if None.
    """
    try:
        # A field has two bytes at least, and each end of a group, which counts as one, has one.
        if len(data) > most_fields and _has_more_fields(data, most_fields):
            raise Refused(too_many or malformed)
        return kind.FromString(data)
    except (DecodeError, IndexError):
        raise Refused(malformed) from None


def decode(kind: type[M], data: bytes, malformed: Failure) -> M:
    """Return a message whose fields need no counting: it is small, or its bytes are bounded where they come from.

    Args:
        malformed: the failure if it is not such a message.
    """
    try:
        return kind.FromString(data)
    except DecodeError:
        raise Refused(malformed) from None


def _has_more_fields(data: bytes, most: int) -> bool:
    """Return whether a message has more than `most` fields, without looking into them.

    Raises:
        DecodeError: it is malformed within those fields.
        IndexError: it ends within one of them.
    """
    at = fields = 0
    while at < len(data) and fields <= most:
        tag, at = _varint(data, at)
        wire_type = tag & 7
        if wire_type == _LENGTH:
            length, at = _varint(data, at)
            at += length
        elif wire_type == _VARINT:
            _, at = _varint(data, at)
        elif wire_type in _FIXED_BYTES:
            at += _FIXED_BYTES[wire_type]
        else:
            raise DecodeError
        fields += 1
    return fields > most


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it."""
    value = data[at]
    if value < 0x80:  # noqa: PLR2004 - one byte alone
        return value, at + 1
    value = 0
    for index in range(_MOST_VARINT_BYTES):
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:  # noqa: PLR2004 - the last byte
            return value, at + index + 1
    raise DecodeError
