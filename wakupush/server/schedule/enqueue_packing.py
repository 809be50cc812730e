"""Enqueueing the packing of ids of old push requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wakupush.model.queues import PACK
from wakupush.postgres import packed_requests
from wakupush.redis.sending import send_upkeep

if TYPE_CHECKING:
    from wakupush.server.resources import Resources

#: Seconds after which a task that no worker began is dropped.
EXPIRES: Final = 300.0


def enqueue_packing(resources: Resources) -> bool:
    """Let a worker, which has the key, pack ids of old push requests, if there are any; say whether."""
    with resources.pool.connection() as connection:
        if not packed_requests.are_due(connection, resources.settings.retention.admitted_requests):
            return False
    send_upkeep(resources.app, PACK, now=resources.now(), expires=EXPIRES, shown="(ids of old requests)")
    return True
