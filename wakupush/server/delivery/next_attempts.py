"""The next attempt of deliveries that failed for the time being: the task that beat enqueues."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from wakupush.model.deliveries import EXPIRED_MOST, Delivery, DeliveryState, Settlement
from wakupush.model.events import EventKind
from wakupush.model.failures import Failure, Route
from wakupush.model.registrations import Receiver
from wakupush.postgres import deliveries, events
from wakupush.protocol.request import filtered
from wakupush.server.delivery.apps import app_of
from wakupush.server.delivery.attempt import start, wait_for
from wakupush.server.delivery.events import count_events, delivery_event
from wakupush.server.delivery.outcome import before, store_ends
from wakupush.server.delivery.posting import DUE_ATTEMPT, Posting, Reporter
from wakupush.server.delivery.sender import Sender

#: Seconds for which a task waits for its posts before it leaves them to themselves.
WAIT_SECONDS: Final = 1.5


def expire(sender: Sender) -> int:
    """End pending deliveries past their time to live, at most `EXPIRED_MOST`, without a post; return how many."""
    with sender.pool.connection() as connection:
        settlements = deliveries.expire(connection, EXPIRED_MOST)
        new_events = [
            delivery_event(sender, settlement.delivery, EventKind.EXPIRED, settlement.failure)
            for settlement in settlements
        ]
        events.add(connection, new_events, sender.identity)
    count_events(new_events)
    return len(settlements)


def attempt_due(sender: Sender, begun_attempts: Mapping[bytes, int], task_id: str) -> Settlement | None:
    """Make the next attempt of deliveries, unless another task began it.

    Args:
        begun_attempts: delivery keys, and how many attempts were begun when beat claimed them. Without any, what has
            expired is ended.
        task_id: of the task that does this; one of the deliveries has the same.

    Returns:
        The outcome of that delivery's attempt, with which the task is to end. None if it is not known yet, or if there
        was no attempt; then the thread that stores the outcome shows it.
    """
    if not begun_attempts:
        expire(sender)
        return None
    settings = sender.settings.delivery
    own = Reporter(from_beginning=True, by_task=True)
    began = time.monotonic()
    with sender.pool.connection() as connection:
        attempts = deliveries.take(connection, begun_attempts, seconds=settings.lease, at_rest=sender.identity.at_rest)
        ends = [end for delivery, receiver in attempts if (end := _end(delivery, receiver, settings.max_attempts))]
        settlements, end_events = store_ends(connection, sender, ends)
        lost_attempts = [before(delivery) for delivery, _ in attempts if delivery.failure is Failure.LEASE_LOST]
        new_events = [
            delivery_event(sender, delivery, EventKind.UNKNOWN, Failure.LEASE_LOST) for delivery in lost_attempts
        ]
        new_events += end_events
        if new_events:
            events.add(connection, new_events, sender.identity)
    postings = [
        _posting(sender, delivery, receiver, own if delivery.task_id == task_id else DUE_ATTEMPT)
        for delivery, receiver in attempts
    ]
    if new_events:
        count_events(new_events)
    if new_events or any(not posting.reporter.by_task for posting in postings):
        sender.task_events.report_beginnings(postings)
        sender.task_events.report_outcomes(postings, settlements)
    end_keys = {end.delivery.delivery_key for end in ends}
    remaining = [posting for posting in postings if posting.delivery.delivery_key not in end_keys]
    wait_for(start(sender, remaining, began=began, scheduled=True), WAIT_SECONDS)
    return own.end_task()


def _posting(sender: Sender, delivery: Delivery, receiver: Receiver | None, reporter: Reporter) -> Posting:
    """Return a posting to the app and platform that the device belongs to now; the row has those of its admission."""
    target = receiver.target if receiver else None
    if target is None:
        return Posting(delivery, None, reporter)
    current = replace(delivery, app=app_of(target, sender.settings) or "", platform=target.platform)
    if current.app_platform != delivery.app_platform:
        # What the row names has nothing to do with it any more, so its breaker must not hold up others like it.
        sender.posts.breaker.note(delivery.app_platform, [Route.WORKS], probe=False)
    return Posting(current, target, reporter)


def _end(delivery: Delivery, receiver: Receiver | None, most: int) -> Settlement | None:
    """Return the end of a delivery that has no attempt or time left, or is not wanted any more; None if it goes on.

    The attempt that taking it began is not made, so it does not count.
    """
    if delivery.expired:
        state, failure = DeliveryState.EXPIRED, Failure.DELIVERY_EXPIRED
    elif delivery.attempt > most:
        state, failure = DeliveryState.DEAD_LETTER, delivery.failure or Failure.ATTEMPTS_EXHAUSTED
    elif receiver is not None and not receiver.preferences.token_fits:
        state, failure = DeliveryState.FAILED, Failure.WRONG_TOKEN
    elif receiver is not None and filtered(delivery.notification_type, receiver.preferences):
        state, failure = DeliveryState.FAILED, Failure.UNWANTED
    else:
        return None
    return Settlement(delivery=delivery, state=state, failure=failure, counted=False)
