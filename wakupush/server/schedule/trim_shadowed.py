"""Bounding the messages that are kept in shadow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush.postgres import shadow
from wakupush.runtime import metrics

if TYPE_CHECKING:
    from wakupush.server.resources import Resources


def trim_shadowed(resources: Resources) -> int:
    """Delete messages that another server answered, and random ones if there are too many; return how many.

    Their requests are remembered as over.
    """
    limits = resources.settings.limits
    with resources.pool.connection() as connection:
        answered = shadow.forget(connection, resources.settings.retention.shadowed_messages)
        rows, size = shadow.count(connection)
        full = 0
        if rows > limits.shadowed_messages or size > limits.shadowed_bytes:
            full = shadow.trim(connection, rows=limits.shadowed_messages, bytes=limits.shadowed_bytes)
    metrics.SHADOWED_MESSAGES.set(rows - full)
    metrics.SHADOWED_DROPPED.inc(full)
    return answered + full
