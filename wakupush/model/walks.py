"""Walks through the Stores of nodes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Track:
    """What a watermark belongs to."""

    #: Name of the node.
    store: str
    #: The shard.
    pubsub_topic: str
    #: Name of the kind of walk.
    walk: str
