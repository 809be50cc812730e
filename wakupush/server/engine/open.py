"""Opening envelopes: cryptography and parsing alone, without a clock or a database."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wakupush.model.entries import Entry
from wakupush.model.failures import Failure
from wakupush.protocol import application, payload, segments, topics
from wakupush.protocol.errors import Refused
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.segments import Segment
from wakupush.server.engine.kind import Kind, Kinds
from wakupush.server.engine.message import Content, Deferred, Elsewhere, Message, Part

#: Bytes of a message that is passed on opened, at most: strangers must not fill queues with more than they send.
MOST_OPENED_BYTES: Final = 4096

#: What an envelope holds, before the message inside is parsed.
Envelope = application.Opened | Part | Failure


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads what envelopes hold, for the kind of message that a task's queue has."""

    kinds: Kinds
    kind: Kind[Any, Any]
    identity: Identity

    def read(self, envelope: Envelope) -> Content:
        """Return the content of an envelope; a message of another kind belongs elsewhere."""
        if not isinstance(envelope, application.Opened):
            return envelope
        kind = self.kinds.by_type.get(envelope.type)
        if kind is None or (envelope.recipient is None and kind.keys is None):
            return Failure.TYPE_UNSUPPORTED
        return kind.read(envelope, self.identity) if kind is self.kind else Elsewhere(kind.queue, envelope.signer)


def public_topics(entries: Iterable[Entry], identity: Identity) -> set[bytes]:
    """Return the topics (4 bytes each) of messages that did not come on one of the server's own."""
    names = {
        topics.topic_of(entry.message.content_topic)
        for entry in entries
        if entry.message.content_topic not in identity.by_topic
    }
    return {topic for topic in names if topic}


def open_message(entry: Entry, reader: Reader, keys: Mapping[bytes, Sequence[bytes | None]]) -> Message:
    """Open a message of a task.

    Args:
        keys: for public topics (4 bytes each), the keys (32 bytes each), None for one that is not derived yet. The
            message is deferred if only such a key may open it.
    """
    envelope: Envelope
    if (before := _opened_before(entry, reader.identity)) is not None:
        envelope = before
    elif reader.kind.keys is None or entry.message.content_topic in reader.identity.by_topic:
        envelope = open_asymmetric(entry, reader.identity)
    else:
        candidates = keys.get(topics.topic_of(entry.message.content_topic) or b"", ())
        envelope = open_symmetric(entry, [key for key in candidates if key is not None])
        if envelope is Failure.NOT_FOR_US and None in candidates:
            return Message(entry, Deferred(for_key=True))
    content = reader.read(envelope)
    if isinstance(envelope, application.Opened) and len(envelope.inner) <= MOST_OPENED_BYTES:
        return Message(entry, content, opened=envelope)
    return Message(entry, content)


def _opened_before(entry: Entry, identity: Identity) -> application.Opened | None:
    """Return a message as another worker opened it, unless its key was retired meanwhile."""
    opened = application.unseal_opened(entry.opened, identity.opened_key, entry.hash) if entry.opened else None
    if opened is None or opened.recipient is None or opened.recipient in identity.by_id.values():
        return opened
    return None


def open_asymmetric(entry: Entry, identity: Identity) -> Envelope:
    """Open a message of a personal or a partitioned topic with the first of the topic's keys that fits.

    Today's key alone is tried on other topics, where a message can be by mistake.
    """
    for key in identity.by_topic.get(entry.message.content_topic, (identity.private_key,)):
        try:
            return _read(payload.open_asymmetric(entry.message.payload, key), key.public_key)
        except Refused as refused:
            if refused.failure is not Failure.NOT_FOR_US:
                return refused.failure
    return Failure.NOT_FOR_US


def open_symmetric(entry: Entry, keys: Iterable[bytes]) -> Envelope:
    """Open a message of a public topic with the first of the topic's keys (32 bytes each) that fits."""
    for key in keys:
        try:
            return _read(payload.open_symmetric(entry.message.payload, key), None)
        except Refused as refused:
            if refused.failure is not Failure.NOT_FOR_US:
                return refused.failure
    return Failure.NOT_FOR_US


def join(part: Part, parts: list[Segment]) -> application.Opened | Failure:
    """Return the message that a part completes.

    Args:
        part: the last one to come.
        parts: all of them, by distinct indexes.
    """
    try:
        whole = _read(payload.Payload(segments.join(parts), part.transport_signer), part.recipient)
    except Refused as refused:
        return refused.failure
    # No client sends a segment in a segment.
    return Failure.PAYLOAD_MALFORMED if isinstance(whole, Part) else whole


def _read(opened: payload.Payload, recipient: PublicKey | None) -> application.Opened | Part:
    content = application.read(opened, recipient)
    return Part(content, opened.signer, recipient) if isinstance(content, Segment) else content
