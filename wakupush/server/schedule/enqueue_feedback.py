"""Enqueueing failures that gorush's webhook reported late."""

from __future__ import annotations

from typing import Final

from wakupush.model.queues import DISPATCH, FEEDBACK
from wakupush.postgres import due
from wakupush.server.resources import Resources

#: Deliveries that one run claims at most.
CLAIMED_MOST: Final = 500
#: Deliveries in one task at most.
TASK_SIZE: Final = 100


def enqueue_feedback(resources: Resources) -> int:
    """Enqueue deliveries stored as delivered whose failure gorush's webhook reported late; return how many."""
    claim = resources.settings.delivery.claim
    with resources.pool.connection() as connection:
        claimed = due.claim_feedback(connection, limit=CLAIMED_MOST, seconds=claim)
    for position in range(0, len(claimed), TASK_SIZE):
        part = claimed[position : position + TASK_SIZE]
        resources.app.send_task(
            FEEDBACK,
            args=[[delivery_key.hex() for delivery_key in part]],
            queue=DISPATCH.name,
            headers={"messages": len(part), "seen": resources.now()},
            argsrepr=f"({len(part)} deliveries that had read as delivered)",
            kwargsrepr="",
        )
    return len(claimed)
