"""Putting together messages that came in segments."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from psycopg import Connection

from wakupush.model.failures import Failure
from wakupush.postgres import message_segments
from wakupush.postgres.message_segments import Name
from wakupush.protocol.sealing import SEAL_BYTES
from wakupush.protocol.segments import Segment
from wakupush.server.engine.message import Elsewhere, Message, Part
from wakupush.server.engine.open import Reader, join

#: Segments of one message at most.
MESSAGE_SEGMENTS: Final = 100
#: Segments that are kept of one signer, whose messages are not complete yet; above it the oldest are dropped.
SIGNER_SEGMENTS: Final = 200
#: Bytes of these segments, and of one message in segments.
SIGNER_BYTES: Final = 8_000_000
#: Stored bytes of a message above which it is left to the pool `rest` before it is joined: its last part can come any
#: number of times until it is handled there.
EXPRESS_BYTES: Final = 2**20
#: Payloads of its parts, by their indexes.
Payloads = dict[int, bytes]


def put_together(
    connection: Connection, messages: Sequence[Message], reader: Reader, most_bytes: int, *, waits: bool, divides: bool
) -> tuple[list[Message], list[Message], list[Message], int]:
    """Join the segments of each complete message.

    Until the transaction ends, no other one adds parts of the same messages. Others may delete some: a message is only
    complete if the parts that are loaded are.

    Args:
        messages: claimed ones, some of them parts.
        reader: of the task's queue; its identity seals the parts while they are kept.
        most_bytes: of parts that are loaded; those of the first message are loaded in any case.
        waits: whether it waits for other tasks that join the same messages. A stranger who sends parts of one message
            all the time would hold up each task that does.
        divides: whether large messages are left to the pool `rest`.

    Returns:
        The messages, a complete one in the place of its last part. Parts for a later task: those of messages that would
        be too much to load, all of a message together, and of messages that another task is joining. Parts for the pool
        `rest`. And how many bytes of parts were loaded.
    """
    names = {message.content.name for message in messages if isinstance(message.content, Part)}
    busy_names = names - message_segments.lock(connection, names, waits=waits)
    messages, busy_parts = _without(messages, busy_names)
    names -= busy_names
    parts = [message.content for message in messages if isinstance(message.content, Part)]
    earlier = message_segments.stored(connection, names)
    complete = _complete(parts, {name: indexes for name, (indexes, _) in earlier.items()})
    large = {name for name in complete if divides and name in earlier and earlier[name][1] > EXPRESS_BYTES}
    messages, large_parts = _without(messages, large)
    complete = {name: None for name in complete if name not in large}
    loaded: set[Name] = set()
    loaded_bytes = 0
    for name in complete:
        size = earlier[name][1] if name in earlier else 0
        if not loaded or loaded_bytes + size <= most_bytes:
            loaded.add(name)
            loaded_bytes += size
    messages, postponed_parts = _without(messages, complete.keys() - loaded)
    payloads = message_segments.parts(connection, loaded, reader.identity.at_rest) if loaded else {}
    stored_payloads = {
        name: payloads.get(name, {}) if name in loaded else dict.fromkeys(indexes, b"")
        for name, (indexes, _) in earlier.items()
    }
    return joined(messages, stored_payloads, reader), postponed_parts + busy_parts, large_parts, loaded_bytes


def _without(messages: Sequence[Message], names: AbstractSet[Name]) -> tuple[list[Message], list[Message]]:
    """Return the messages that are no parts of these, and those that are."""
    others: list[Message] = []
    parts: list[Message] = []
    for message in messages:
        is_part = isinstance(message.content, Part) and message.content.name in names
        (parts if is_part else others).append(message)
    return others, parts


def _complete(parts: Sequence[Part], earlier: Mapping[Name, frozenset[int]]) -> dict[Name, None]:
    here: dict[Name, set[int]] = {}
    complete: dict[Name, None] = {}
    for part in parts:
        indexes = here.setdefault(part.name, set(earlier.get(part.name, ())))
        indexes.add(part.segment.index)
        if len(indexes) >= part.segment.count and not _is_too_large(part.segment):
            complete[part.name] = None
    return complete


def joined(messages: Sequence[Message], stored: Mapping[Name, Payloads], reader: Reader) -> list[Message]:
    """Return messages with whole ones in the place of the parts that complete them.

    Each message sees what those before it left: earlier parts of the same message, or that its parts are used up.
    """
    here = {name: dict(payloads) for name, payloads in stored.items()}
    return [
        _joined(message, message.content, here.setdefault(message.content.name, {}), reader)
        if isinstance(message.content, Part)
        else message
        for message in messages
    ]


def _joined(message: Message, part: Part, here: Payloads, reader: Reader) -> Message:
    segment = part.segment
    if _is_too_large(segment):
        return Message(message.entry, Failure.SEGMENT_LIMIT)
    payloads = {segment.index: segment.payload} | here
    if len(payloads) < segment.count:
        here.update(payloads)
        return message
    whole = segment.entire_message_hash
    # What is stored of a part is its payload alone; the hash shows whether the length of this one is right.
    parts = [
        Segment(whole, index, segment.count, payload, segment.original_length) for index, payload in payloads.items()
    ]
    content = reader.read(join(part, parts))
    if isinstance(content, Elsewhere):
        return Message(message.entry, content)  # its parts wait there for this one
    here.clear()
    return Message(message.entry, content, last_part=part)


def _is_too_large(segment: Segment) -> bool:
    # All parts of a message but the last are of one size.
    size = len(segment.payload) + SEAL_BYTES
    return segment.count > MESSAGE_SEGMENTS or segment.count * size > SIGNER_BYTES
