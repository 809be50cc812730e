"""What gorush's feedback webhook reports of a delivery: failures that its sync answer leaves out.

Source: docs/reference/contracts/gorush.md, sections 2 to 4. The webhook is called once, before the sync answer, and
never again.
"""

from collections.abc import Sequence
from enum import StrEnum

from psycopg_pool import ConnectionPool

from wakupush.gorush.outcomes import read_feedback
from wakupush.model.notifications import read_notif_id
from wakupush.postgres import deliveries, events
from wakupush.server.delivery import tokens
from wakupush.server.delivery.events import count_events, death_events, delivery_event, failure_kind
from wakupush.server.delivery.sender import Sender


class FeedbackResult(StrEnum):
    """The result of a call of the webhook."""

    #: The attempt is under way, or stored as delivered: the failure is in the delivery's row now.
    NOTED = "noted"
    #: The attempt has had its outcome: gorush's answer reported the failure, too, or another attempt was begun.
    KNOWN = "known"
    #: There is no such delivery.
    UNKNOWN = "unknown"
    #: The body is not feedback of gorush.
    MALFORMED = "malformed"
    #: The secret is missing or wrong.
    FORBIDDEN = "forbidden"
    #: The body is larger than any feedback.
    TOO_LARGE = "too_large"
    #: The body did not come in time.
    TOO_SLOW = "too_slow"
    #: Postgres did not take it.
    UNAVAILABLE = "unavailable"


def take(pool: ConnectionPool, body: bytes, apps: Sequence[str] | None = None) -> FeedbackResult:
    """Keep the failure that a call of the webhook reports; a repeat changes nothing.

    Args:
        body: whatever came. It may hold a device token, which is not kept.
        apps: whose deliveries the caller may report; None for all.

    Raises:
        Exception: one of `wakupush.server.errors.INFRASTRUCTURE`.
    """
    report = read_feedback(body)
    if report is None:
        return FeedbackResult.MALFORMED
    notif_id, failure = report
    attempt = read_notif_id(notif_id)
    if attempt is None:
        return FeedbackResult.UNKNOWN
    with pool.connection() as connection:
        if deliveries.note_feedback(connection, *attempt, failure, apps=apps):
            return FeedbackResult.NOTED
        return FeedbackResult.KNOWN if deliveries.exists(connection, attempt[0]) else FeedbackResult.UNKNOWN


def apply(sender: Sender, delivery_keys: list[bytes]) -> None:
    """Make deliveries failed that were stored as delivered, as gorush's webhook reported; a repeat does nothing."""
    with sender.pool.connection() as connection:
        settlements = deliveries.apply_feedback(connection, delivery_keys)
        new_events = [
            delivery_event(sender, settlement.delivery, failure_kind(settlement.failure), settlement.failure)
            for settlement in settlements
            if settlement.failure is not None
        ]
        failures = [settlement.failure for settlement in settlements]
        doubted = tokens.doubted(connection, sender.settings.tokens, failures)
        died = tokens.learn(connection, settlements, doubted, first_count=False)
        new_events += death_events(sender, died)
        events.add(connection, new_events, sender.identity)
    count_events(new_events)
