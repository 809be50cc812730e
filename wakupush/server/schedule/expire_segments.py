"""Deleting parts of messages that nobody completed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush.postgres import message_segments

if TYPE_CHECKING:
    from wakupush.server.resources import Resources


def expire_segments(resources: Resources) -> int:
    """Delete segments whose message was not completed in time; return how many."""
    with resources.pool.connection() as connection:
        return message_segments.expire(connection, resources.settings.retention.segments)
