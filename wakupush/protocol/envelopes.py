"""The layers of every message that is sent, from the application message outwards, and the topic it goes to."""

from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import application, payload, segments, topics
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey, PublicKey

#: Bytes of a WakuMessage's protobuf that both nwaku and go-waku relay.
MOST_MESSAGE_BYTES = 150_000
#: The most bytes that sealing and the envelope add to a message: padding, two signatures, ECIES, segment, topics.
ENVELOPE_BYTES = 1024


def seal_parts(metadata: bytes, recipient: PublicKey, signer: PrivateKey, *, most_bytes: int) -> list[bytes]:
    """Return the payloads that carry an ApplicationMetadataMessage to a key, signed at their layer too.

    Args:
        signer: of the transport layer; clients of the reference drop messages that are not signed there.
        most_bytes: of a WakuMessage; what is larger goes in segments.
    """
    most = most_bytes - ENVELOPE_BYTES
    parts = [metadata] if len(metadata) <= most else segments.split(metadata, most)
    return [payload.seal_asymmetric(part, recipient, signer) for part in parts]


def to_key(
    sender: PrivateKey,
    recipient: PublicKey,
    kind: Type.ValueType,
    inner: bytes,
    *,
    timestamp: int,
    most_bytes: int = MOST_MESSAGE_BYTES,
) -> list[WakuMessage]:
    """Return a message to a key on its partitioned topic, in several parts if it is large.

    Args:
        sender: signs both layers; an ephemeral key if the sender means to stay anonymous.
        inner: protobuf, or a sealed registration.
        timestamp: nanoseconds since the epoch; nodes archive only fresh messages.
        most_bytes: of a WakuMessage.
    """
    metadata = application.wrap(kind, inner, sender)
    topic = topics.content_topic(topics.partitioned_topic(recipient))
    return [
        WakuMessage(payload=part, content_topic=topic, timestamp=timestamp)
        for part in seal_parts(metadata, recipient, sender, most_bytes=most_bytes)
    ]


def to_topic(sender: PrivateKey, name: str, key: bytes, data: bytes, *, timestamp: int) -> WakuMessage:
    """Return a message that everybody who knows the name of its topic can open.

    Args:
        sender: signs the transport layer.
        key: of the topic, `topics.symmetric_key`, 32 bytes.
        data: an ApplicationMetadataMessage, or a ProtocolMessage around one.
        timestamp: nanoseconds since the epoch.
    """
    return WakuMessage(
        payload=payload.seal_symmetric(data, key, sender),
        content_topic=topics.content_topic(name),
        timestamp=timestamp,
    )
