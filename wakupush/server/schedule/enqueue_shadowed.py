"""Enqueueing messages that came in shadow, and that the other server does not answer any more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from wakupush.model.queues import QUEUES
from wakupush.postgres import ledger, shadow
from wakupush.redis.sending import in_tasks, send_entries

if TYPE_CHECKING:
    from wakupush.server.resources import Resources

#: Messages that one run enqueues at most.
TOGETHER: Final = 64


def enqueue_shadowed(resources: Resources) -> int:
    """Enqueue messages that were seen since the other server was stopped, as if they had just arrived; return how many.

    A worker that is faster than this commit waits for it, as it claims what is taken out of the ledger here. If the
    message looks stale, it does not wait, and drops it as a copy.
    """
    with resources.pool.connection() as connection:
        if math.isinf(resources.shadow.answers_since(connection)):
            return 0
        taken = shadow.take(connection, TOGETHER)
        if taken:
            ledger.remove(connection, [entry for _, entry in taken])
            for queue in QUEUES.values():
                for task in in_tasks(entry for of, entry in taken if of is queue):
                    send_entries(resources.app, queue, task, waits_since=resources.now())
    return len(taken)
