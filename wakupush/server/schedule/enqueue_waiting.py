"""Enqueueing queries that waited."""

from __future__ import annotations

from typing import Final

from wakupush.model.queues import QUERY
from wakupush.postgres import ledger, waiting_queries
from wakupush.redis.sending import in_tasks, send_entries
from wakupush.server.resources import Resources

#: Queries that one run enqueues at most.
TOGETHER: Final = 64


def enqueue_waiting(resources: Resources) -> int:
    """Enqueue queries whose time has come, as if they had just arrived; return how many.

    A worker that is faster than this commit waits for it, as it claims what is taken out of the ledger here. If the
    query looks stale, it does not wait, and drops it as a copy.
    """
    with resources.pool.connection() as connection:
        due = waiting_queries.take(connection, TOGETHER)
        if due:
            ledger.remove(connection, due)
            for task in in_tasks(due):
                send_entries(resources.app, QUERY, task, waits_since=resources.now())
    return len(due)
