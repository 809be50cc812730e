"""Bounding the quarantine."""

from __future__ import annotations

from typing import Final

import structlog

from wakupush.postgres import quarantine
from wakupush.runtime import metrics
from wakupush.server.resources import Resources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Bytes of messages in quarantine; beyond that chance decides which to drop.
QUARANTINE_BYTES: Final = 256_000_000


def trim_quarantine(resources: Resources) -> int:
    """Delete random messages from the quarantine if it has too many bytes; return how many."""
    with resources.pool.connection() as connection:
        dropped = quarantine.trim(connection, bytes=QUARANTINE_BYTES)
    if dropped:
        metrics.QUARANTINE_DROPPED.inc(dropped)
        log.error("quarantine_full", dropped=dropped)
    return dropped
