"""Sealing answers."""

from collections.abc import Iterable

from wakupush.model.entries import SealedAnswer
from wakupush.protocol import application
from wakupush.protocol.envelopes import seal_parts
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.topics import content_topic, partitioned_topic
from wakupush.server.engine.outcome import Outcome


def seal(outcomes: Iterable[Outcome], key: PrivateKey, *, most_bytes: int) -> list[list[SealedAnswer]]:
    """Return the answer of each outcome, sealed to the key that asked and signed at both layers; nothing for silence.

    It goes to the partitioned topic of that key, on the shard that the question came from; in segments if it is too
    large for the node.

    Args:
        most_bytes: of a WakuMessage.
    """
    return [_seal(outcome, key, most_bytes) for outcome in outcomes]


def _seal(outcome: Outcome, key: PrivateKey, most_bytes: int) -> list[SealedAnswer]:
    reply, entry = outcome.reply, outcome.entry
    if reply is None:
        return []
    topic = content_topic(partitioned_topic(reply.recipient))
    metadata = application.wrap(reply.type, reply.inner, key)
    return [
        SealedAnswer(pubsub_topic=entry.pubsub_topic, content_topic=topic, payload=part, trace_id=entry.trace_id)
        for part in seal_parts(metadata, reply.recipient, key, most_bytes=most_bytes)
    ]
