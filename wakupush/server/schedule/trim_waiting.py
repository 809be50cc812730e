"""Bounding the queries that wait."""

from __future__ import annotations

from typing import Final

from wakupush.postgres import waiting_queries
from wakupush.runtime import metrics
from wakupush.server.resources import Resources

#: Seconds for which a query waits; clients use what comes within an hour.
EXPIRY_SECONDS: Final = 3600.0
#: Queries that wait, for the key of their topic or for their turn; beyond that chance decides which to drop.
QUERIES: Final = 10_000
#: Bytes of these queries; most have 400.
QUERY_BYTES: Final = 64_000_000


def trim_waiting(resources: Resources) -> int:
    """Delete queries that waited too long, and random ones if there are too many; return how many."""
    with resources.pool.connection() as connection:
        expired = waiting_queries.expire(connection, EXPIRY_SECONDS)
        full = waiting_queries.trim(connection, rows=QUERIES, bytes=QUERY_BYTES)
        for_key, for_turn = waiting_queries.count(connection)
    metrics.QUERIES_DROPPED.labels("expired").inc(expired)
    metrics.QUERIES_DROPPED.labels("full").inc(full)
    metrics.QUERIES_WAITING.labels("key").set(for_key)
    metrics.QUERIES_WAITING.labels("turn").set(for_turn)
    return expired + full
