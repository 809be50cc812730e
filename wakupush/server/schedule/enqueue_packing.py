"""Enqueueing the packing of ids of old push requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wakupush.model.queues import PACK, REGISTRATION
from wakupush.postgres import packed_requests

if TYPE_CHECKING:
    from wakupush.server.resources import Resources

#: Seconds after which a task that nobody began is not needed any more: another one was enqueued.
EXPIRES: Final = 300.0


def enqueue_packing(resources: Resources) -> bool:
    """Let a worker, which has the key, pack ids of old push requests, if there are any; say whether."""
    with resources.pool.connection() as connection:
        if not packed_requests.are_due(connection, resources.settings.retention.admitted_requests):
            return False
    resources.app.send_task(
        PACK,
        queue=REGISTRATION.name,
        headers={"messages": 1, "seen": resources.now()},
        expires=EXPIRES,
        argsrepr="(ids of old requests)",
        kwargsrepr="",
    )
    return True
