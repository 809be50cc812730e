"""Deleting parts of messages that were not completed in time, or that are too many."""

from __future__ import annotations

from typing import Final

import structlog

from wakupush.postgres import message_segments
from wakupush.server.resources import Resources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds for which a part waits for the others: as long as the window of reconcile, which may bring the last one. A
#: part that comes later completes none.
EXPIRY_SECONDS: Final = 86_400.0
#: Parts that are kept of all signers together; above it the oldest are dropped.
SEGMENTS: Final = 10_000
#: Bytes of these parts.
SEGMENT_BYTES: Final = 256_000_000


def expire_segments(resources: Resources) -> int:
    """Delete segments whose message was not completed in time, and the oldest if too many are kept; return how many.

    A flood of parts that are never completed does not hold up a message whose parts come one after the other.
    """
    with resources.pool.connection() as connection:
        expired = message_segments.expire(connection, EXPIRY_SECONDS)
        trimmed = message_segments.trim_all(connection, parts=SEGMENTS, bytes=SEGMENT_BYTES)
    if trimmed:
        log.info("segments_dropped", segments=trimmed)
    return expired + trimmed
