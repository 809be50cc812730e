"""Answers in the outbox."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedAnswer:
    """An answer, or a part of one, sealed to the key of the client that asked."""

    #: Where it goes: the shard that the question came from, and the asking key's partitioned topic.
    pubsub_topic: str
    content_topic: str
    #: 26/WAKU2-PAYLOAD.
    payload: bytes = field(repr=False)
    trace_id: str
