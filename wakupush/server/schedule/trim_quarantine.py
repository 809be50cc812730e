"""Bounding the quarantine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from wakupush.postgres import quarantine
from wakupush.runtime import metrics

if TYPE_CHECKING:
    from wakupush.server.resources import Resources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def trim_quarantine(resources: Resources) -> int:
    """Delete random messages from the quarantine if it has too many bytes; return how many."""
    with resources.pool.connection() as connection:
        dropped = quarantine.trim(connection, bytes=resources.settings.limits.quarantine_bytes)
    if dropped:
        metrics.QUARANTINE_DROPPED.inc(dropped)
        log.error("quarantine_full", dropped=dropped)
    return dropped
