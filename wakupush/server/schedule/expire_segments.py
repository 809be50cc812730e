"""Deleting parts of messages that were not completed in time, or that are too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from wakupush.postgres import message_segments

if TYPE_CHECKING:
    from wakupush.server.resources import Resources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def expire_segments(resources: Resources) -> int:
    """Delete segments whose message was not completed in time, and the oldest if too many are kept; return how many.

    A flood of parts that are never completed does not hold up a message whose parts come one after the other.
    """
    limits = resources.settings.limits
    with resources.pool.connection() as connection:
        expired = message_segments.expire(connection, resources.settings.retention.segments)
        trimmed = message_segments.trim_all(connection, parts=limits.segments_kept, bytes=limits.segment_bytes_kept)
    if trimmed:
        log.info("segments_dropped", segments=trimmed)
    return expired + trimmed
