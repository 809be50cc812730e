"""Opening messages that are encrypted to the server's key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush.failures import Failure
from wakupush.protocol import application, payload
from wakupush.protocol.errors import Refused
from wakupush.protocol.segments import Segment

if TYPE_CHECKING:
    from wakupush.protocol.application import Opened
    from wakupush.protocol.keys import PrivateKey
    from wakupush.queues import Entry


def open_asymmetric(entry: Entry, private_key: PrivateKey) -> Opened | Failure:
    """Open a message of the personal or the partitioned topic."""
    if entry.message.version != payload.VERSION:
        return Failure.NOT_FOR_US
    try:
        return _read(payload.open_asymmetric(entry.message.payload, private_key))
    except Refused as refused:
        return refused.failure


def open_symmetric(entry: Entry, keys: list[bytes]) -> Opened | Failure:
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


def _read(opened: payload.Payload) -> Opened:
    message = application.read(opened)
    if isinstance(message, Segment):
        raise Refused(Failure.SEGMENT_INCOMPLETE)
    return message
