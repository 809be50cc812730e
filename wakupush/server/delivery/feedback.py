"""What gorush's feedback webhook reports of a delivery: failures that its sync answer leaves out.

Source: docs/reference/contracts/gorush.md, sections 2 to 4. The webhook is called once, before the sync answer, and
never again.
"""

from __future__ import annotations

from enum import StrEnum

from psycopg_pool import ConnectionPool

from wakupush.gorush.outcomes import read_feedback
from wakupush.model.events import EventKind
from wakupush.model.notifications import read_notif_id
from wakupush.postgres import deliveries, events
from wakupush.server.counting import count_events
from wakupush.server.delivery import tokens
from wakupush.server.delivery.settlement import failed, happened
from wakupush.server.delivery.worker import Worker


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


def take(pool: ConnectionPool, body: bytes) -> FeedbackResult:
    """Keep the failure that a call of the webhook reports; a repeat changes nothing.

    Args:
        pool: of Postgres connections.
        body: whatever came. It may hold a device token, which is not kept.

    Raises:
        Exception: one of `wakupush.server.faults.INFRASTRUCTURE`.
    """
    told = read_feedback(body)
    if told is None:
        return FeedbackResult.MALFORMED
    notif_id, failure = told
    attempt = read_notif_id(notif_id)
    if attempt is None:
        return FeedbackResult.UNKNOWN
    with pool.connection() as connection:
        if deliveries.note_feedback(connection, *attempt, failure):
            return FeedbackResult.NOTED
        return FeedbackResult.KNOWN if deliveries.exists(connection, attempt[0]) else FeedbackResult.UNKNOWN


def apply(resources: Worker, delivery_keys: list[bytes]) -> None:
    """Make deliveries failed that were stored as delivered, as gorush's webhook reported; a repeat does nothing."""
    with resources.pool.connection() as connection:
        settled = deliveries.apply_feedback(connection, delivery_keys)
        news = [
            happened(resources, each.delivery, failed(each.failure), each.failure)
            for each in settled
            if each.failure is not None
        ]
        doubted = tokens.doubted(connection, resources.settings.tokens, [each.failure for each in settled])
        died = tokens.learn(connection, settled, doubted, tried=False)
        news += [happened(resources, each.delivery, EventKind.TOKEN_DIED, each.failure) for each in died]
        events.add(connection, news)
    count_events(news)
