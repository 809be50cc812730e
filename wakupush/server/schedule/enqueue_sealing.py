"""Enqueueing the sealing of rows that older code wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from wakupush.model.queues import SEAL
from wakupush.postgres import old_code, unsealed
from wakupush.redis.sending import send_upkeep

if TYPE_CHECKING:
    from wakupush.server.resources import Resources

#: Seconds after which a task that no worker began is dropped.
EXPIRES: Final = 30.0


def enqueue_sealing(resources: Resources) -> bool:
    """Let a worker, which has the key, seal some rows, if there are any and no older code reads them; say whether."""
    with resources.pool.connection() as connection:
        if old_code.may_run(connection) or not unsealed.are_left(connection):
            return False
    send_upkeep(resources.app, SEAL, now=resources.now(), expires=EXPIRES, shown="(rows in the clear)")
    return True
