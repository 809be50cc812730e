"""Bounding the queries that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush.postgres import waiting_queries
from wakupush.runtime import metrics

if TYPE_CHECKING:
    from wakupush.server.resources import Resources


def trim_waiting(resources: Resources) -> int:
    """Delete queries that waited too long, and random ones if there are too many; return how many."""
    limits = resources.settings.limits
    with resources.pool.connection() as connection:
        expired = waiting_queries.expire(connection, resources.settings.retention.queries)
        full = waiting_queries.trim(connection, rows=limits.queries_waiting, bytes=limits.query_bytes_waiting)
        for_key, for_turn = waiting_queries.count(connection)
    metrics.QUERIES_DROPPED.labels("expired").inc(expired)
    metrics.QUERIES_DROPPED.labels("full").inc(full)
    metrics.QUERIES_WAITING.labels("key").set(for_key)
    metrics.QUERIES_WAITING.labels("turn").set(for_turn)
    return expired + full
