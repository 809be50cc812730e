"""Opening the messages for a key: every layer, and messages in segments. Sans-IO."""

from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import application, payload, segments, topics
from wakupush.protocol.advertisement import parse_advertisement
from wakupush.protocol.application import Opened, Type
from wakupush.protocol.errors import Refused
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.payload import Payload
from wakupush.protocol.query import Info
from wakupush.protocol.segments import Segment

#: Segments of incomplete messages that are kept; each is a Waku message, at most 150 KB.
MOST_KEPT = 200


class Mailbox:
    """The messages for a key on its partitioned topic.

    Args:
        key: that messages are sealed to.
        most_segments: of one message. Anybody can send segments, so allow more than one only if a large message is due.
    """

    def __init__(self, key: PrivateKey, most_segments: int = 1) -> None:
        self._key = key
        self._most_segments = most_segments
        self.content_topic = topics.content_topic(topics.partitioned_topic(key.public_key))
        self._parts: dict[tuple[PublicKey | None, bytes], dict[int, Segment]] = {}

    def take(self, message: WakuMessage) -> Opened | None:
        """Return the content of a message; None if it is for another key, unreadable, or an incomplete part."""
        try:
            plain = payload.open_asymmetric(message.payload, self._key)
            content = application.read(plain)
            return content if isinstance(content, Opened) else self._join(content, plain.signer)
        except Refused:
            return None

    def _join(self, part: Segment, signer: PublicKey | None) -> Opened | None:
        place = (signer, part.entire_message_hash)
        if part.count > self._most_segments:
            return None
        while sum(map(len, self._parts.values())) >= MOST_KEPT:
            del self._parts[next(iter(self._parts))]
        parts = self._parts.setdefault(place, {})
        parts[part.index] = part
        if len(parts) < part.count:
            return None
        del self._parts[place]
        whole = application.read(Payload(segments.join(list(parts.values())), signer))
        return whole if isinstance(whole, Opened) else None


def read_advertisement(message: WakuMessage, topic_key: bytes, user: PublicKey) -> tuple[Info, ...] | None:
    """Return the infos of an advertisement by this user; None if the message is something else.

    Args:
        topic_key: of the user's contact code topic, 32 bytes.
        user: who signs it, with the registered key.
    """
    content = open_advertisement(message, topic_key)
    if content is None or content.type != Type.CONTACT_CODE_ADVERTISEMENT or content.signer != user:
        return None
    try:
        return parse_advertisement(content.inner)
    except Refused:
        return None


def open_advertisement(message: WakuMessage, topic_key: bytes) -> Opened | None:
    """Return the content of a message on a contact code topic; None if it cannot be read.

    Args:
        topic_key: of the topic, 32 bytes.
    """
    try:
        return application.read_public(payload.open_symmetric(message.payload, topic_key))
    except Refused:
        return None
