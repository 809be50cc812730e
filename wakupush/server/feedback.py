"""What gorush's feedback webhook tells of a delivery: failures that its sync answer leaves out.

Source: docs/contracts/gorush.md, sections 2 to 4. The webhook is called once, before the sync answer, and never again.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from wakupush.gorush.notification import read_notif_id
from wakupush.gorush.outcomes import read_feedback
from wakupush.queues import DISPATCH, FEEDBACK
from wakupush.state import deliveries

if TYPE_CHECKING:
    from psycopg_pool import ConnectionPool

    from wakupush.server.context import Resources

#: Deliveries that one run of the schedule claims at most.
CLAIMED_MOST: Final = 500
#: Deliveries in one task at most.
TASK_SIZE: Final = 100


class Result(StrEnum):
    """What came of a call of the webhook."""

    #: The attempt is under way, or read as delivered: the failure is in the delivery's row.
    NOTED = "noted"
    #: The attempt has had its outcome: gorush's answer told of the failure, too, or another attempt was begun.
    KNOWN = "known"
    #: No delivery of ours.
    UNKNOWN = "unknown"
    #: The body is no feedback of gorush.
    MALFORMED = "malformed"
    #: The secret is missing or wrong.
    FORBIDDEN = "forbidden"
    #: The body is larger than any feedback.
    TOO_LARGE = "too_large"
    #: The body did not come in time.
    TOO_SLOW = "too_slow"
    #: Postgres did not take it, or too many calls wait for it.
    UNAVAILABLE = "unavailable"


def take(pool: ConnectionPool, body: bytes) -> Result:
    """Keep what a call of the webhook tells; a repeat changes nothing.

    Args:
        pool: of Postgres connections.
        body: whatever came. It may hold a device token, which is not kept.

    Raises:
        Exception: one of `wakupush.server.faults.INFRASTRUCTURE`.
    """
    told = read_feedback(body)
    if told is None:
        return Result.MALFORMED
    notif_id, failure = told
    attempt = read_notif_id(notif_id)
    if attempt is None:
        return Result.UNKNOWN
    with pool.connection() as connection:
        if deliveries.note_feedback(connection, *attempt, failure):
            return Result.NOTED
        return Result.KNOWN if deliveries.exists(connection, attempt[0]) else Result.UNKNOWN


def enqueue_feedback(resources: Resources) -> int:
    """Enqueue what gorush's webhook told of deliveries that had read as delivered; return how many they are."""
    claim = resources.settings.delivery.claim
    with resources.pool.connection() as connection:
        due = deliveries.claim_feedback(connection, limit=CLAIMED_MOST, seconds=claim)
    for position in range(0, len(due), TASK_SIZE):
        part = due[position : position + TASK_SIZE]
        resources.app.send_task(
            FEEDBACK,
            args=[[delivery_key.hex() for delivery_key in part]],
            queue=DISPATCH.name,
            headers={"messages": len(part), "seen": resources.now()},
            argsrepr=f"({len(part)} deliveries that had read as delivered)",
            kwargsrepr="",
        )
    return len(due)
