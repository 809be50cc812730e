"""Shadow: another server with the same key answers and pushes, and this one stores alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wakupush.model.entries import Entry
    from wakupush.model.queues import Queue


@dataclass(frozen=True, slots=True)
class ShadowState:
    """When the shadow began and when it ended, in seconds since the epoch."""

    begun: float
    #: None while it goes on.
    ended: float | None
    #: Messages seen from then on are answered and pushed; None while none are.
    answers_since: float | None


@dataclass(frozen=True, slots=True)
class Shadowed:
    """A message that was decided and not answered."""

    queue: Queue
    entry: Entry
    #: Whether it is known that this server will never answer it.
    is_over: bool
    #: Application message id (32 bytes) of a push request of which an item would have been taken on, and its items.
    request_id: bytes | None
    items: int
    #: The content topic of its answer, and the bytes of each part, as it would have gone to the node.
    answer_topic: str
    answer_bytes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Expected:
    """An answer that the other server is to give."""

    #: Name of the queue that the message came through.
    queue: str
    pubsub_topic: str
    content_topic: str
    #: Of its payload, or of that of its first part.
    bytes: int
    #: When the message was seen, in seconds since the epoch.
    seen: float
