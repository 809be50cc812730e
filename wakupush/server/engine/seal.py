"""Sealing answers."""

from collections.abc import Iterable

from wakupush.model.entries import Entry, SealedAnswer
from wakupush.protocol import application
from wakupush.protocol.envelopes import seal_parts
from wakupush.protocol.identity import Identity
from wakupush.protocol.topics import content_topic, partitioned_topic
from wakupush.server.engine.outcome import Outcome, Reply


def seal(outcomes: Iterable[Outcome], identity: Identity, *, most_bytes: int) -> list[list[SealedAnswer]]:
    """Return the answer of each outcome, sealed to the key that asked and signed at both layers; nothing for silence.

    It goes to the partitioned topic of that key, on the shard that the question came from; in segments if it is too
    large for the node.

    Args:
        most_bytes: of a WakuMessage.
    """
    return [
        [part for reply in outcome.replies for part in _seal(reply, outcome.entry, identity, most_bytes)]
        for outcome in outcomes
    ]


def _seal(reply: Reply, entry: Entry, identity: Identity, most_bytes: int) -> list[SealedAnswer]:
    key = identity.key_of(reply.signer)
    topic = content_topic(partitioned_topic(reply.recipient))
    metadata = application.wrap(reply.type, reply.inner, key)
    return [
        SealedAnswer(pubsub_topic=entry.pubsub_topic, content_topic=topic, payload=part, trace_id=entry.trace_id)
        for part in seal_parts(metadata, reply.recipient, key, most_bytes=most_bytes)
    ]
