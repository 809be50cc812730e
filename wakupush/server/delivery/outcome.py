"""The outcomes of attempts, first ones and due ones: stored in one transaction, then counted and reported."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import structlog
from psycopg import Connection

from wakupush.gorush.outcomes import PostOutcome
from wakupush.model.deliveries import Delivery, DeliveryState, Settlement
from wakupush.model.events import Event, EventKind
from wakupush.model.failures import Failure, Retry, Route, route_state
from wakupush.postgres import deliveries, events, registrations
from wakupush.runtime import metrics
from wakupush.server.delivery import tokens
from wakupush.server.delivery.events import count_events, death_events, delivery_event, failure_kind
from wakupush.server.delivery.posting import Posting
from wakupush.server.delivery.retry import next_wait
from wakupush.server.delivery.sender import Sender
from wakupush.server.errors import INFRASTRUCTURE, once_postgres_is_back

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


#: What becomes of a delivery that is not tried again, besides the failure of its last attempt.
_ENDS: Final = {DeliveryState.EXPIRED: EventKind.EXPIRED, DeliveryState.DEAD_LETTER: EventKind.DEAD_LETTER}


def settle(
    sender: Sender,
    post: Sequence[Posting],
    outcomes: Sequence[PostOutcome],
    *,
    retry_after: float = 0.0,
    probe: bool = False,
) -> list[Settlement]:
    """Store the outcomes of attempts, as far as their leases are ours; return them as they were stored.

    Args:
        outcomes: of each, as gorush answered.
        retry_after: seconds for which gorush asks to be left alone.
        probe: whether the route was known to be broken. Then an attempt that fails because of the route does not count,
            unless the push may have arrived: an outage is to use up no attempts. Where no push ever reached the device
            it does count: its failure may be the device's own.

    Returns:
        Nothing if Postgres does not take them in time: the leases end, and the deliveries come back as unknown.
    """
    try:
        stored_settlements = _store(sender, post, outcomes, retry_after=retry_after, probe=probe)
    except INFRASTRUCTURE as error:
        log.error(  # noqa: TRY400 - the traceback says nothing more
            "outcomes_not_stored", deliveries=len(post), error=type(error).__name__
        )
        return []
    for settlement in stored_settlements:
        if settlement.state is DeliveryState.PENDING and settlement.failure is not None:
            metrics.RETRIES.labels(*settlement.delivery.app_platform.labels, settlement.failure.label).inc()
    sender.task_events.report_outcomes(post, stored_settlements)
    return stored_settlements


def store_ends(
    connection: Connection, sender: Sender, ends: Sequence[Settlement]
) -> tuple[list[Settlement], list[Event]]:
    """Store the ends of deliveries that are due and not attempted any more; return them, and their events.

    Args:
        connection: in the transaction that took them.
    """
    stored_settlements = deliveries.settle(connection, ends)
    new_events = [
        delivery_event(sender, before(settlement.delivery), kind, settlement.failure)
        for settlement in stored_settlements
        for kind in _kinds(settlement, attempted=False)
    ]
    return stored_settlements, new_events


def before(delivery: Delivery) -> Delivery:
    """Return a delivery as of the attempt before the one that taking it began."""
    return replace(delivery, attempt=delivery.attempt - 1)


def _settlement(
    sender: Sender, posting: Posting, failure: Failure | None, *, retry_after: float, probe: bool
) -> Settlement:
    delivery, target = posting.delivery, posting.target
    success = Settlement(delivery=delivery, state=DeliveryState.DELIVERED)
    if target is not None:
        success = replace(success, version=target.version, suspected=target.suspected, proven=target.proven)
    if failure is None:
        return success
    counted = not (probe and route_state(failure, proven=success.proven) is Route.BROKEN and not failure.unknown)
    attempt = delivery.attempt if counted else max(1, delivery.attempt - 1)
    wait = next_wait(failure, attempt, sender.settings.delivery, at_least=retry_after)
    state = DeliveryState.PENDING
    if wait is None:
        state = DeliveryState.FAILED if failure.retry is Retry.NEVER else DeliveryState.DEAD_LETTER
    return replace(success, state=state, failure=failure, wait=wait, counted=counted)


@once_postgres_is_back
def _store(
    sender: Sender,
    post: Sequence[Posting],
    outcomes: Sequence[PostOutcome],
    *,
    retry_after: float,
    probe: bool,
) -> list[Settlement]:
    """Store the outcomes of a post; a failure from gorush's webhook counts unless gorush's answer was certain."""
    with sender.pool.connection() as connection:
        failures = _lock(connection, post, outcomes)
        doubted = tokens.doubted(connection, sender.settings.tokens, failures)
        settlements = [
            _settlement(
                sender,
                posting,
                tokens.believed(failure, posting.delivery.app_platform, doubted),
                retry_after=retry_after,
                probe=probe,
            )
            for posting, failure in zip(post, failures, strict=True)
        ]
        stored_settlements = deliveries.settle(connection, settlements)
        new_events = [
            delivery_event(sender, settlement.delivery, kind, settlement.failure, len(post))
            for settlement in stored_settlements
            for kind in _kinds(settlement, attempted=True)
        ]
        # Of several failures in a post gorush may lose some, never all: if one is seen, no success is certain.
        died = tokens.learn(connection, stored_settlements, doubted, certain=not any(failures))
        new_events += death_events(sender, died)
        events.add(connection, new_events, sender.identity)
    count_events(new_events)
    return stored_settlements


def _lock(connection: Connection, post: Sequence[Posting], outcomes: Sequence[PostOutcome]) -> list[Failure | None]:
    """Lock the devices whose tokens are judged, then the deliveries; return the failures, with those of the webhook.

    If only the webhook reports that a token is bad, its device was not locked: all locks are given up and taken again.
    """
    failures: Sequence[Failure | None] = outcomes
    while True:
        installations = tokens.judged(post, failures)
        registrations.lock(connection, installations)
        reports = deliveries.lock(connection, [posting.delivery for posting in post])
        failures = [
            _merged_failure(outcome, reports.get(posting.delivery.delivery_key))
            for posting, outcome in zip(post, outcomes, strict=True)
        ]
        if tokens.judged(post, failures) <= installations:
            return failures
        connection.rollback()


def _merged_failure(failure: Failure | None, report: Failure | None) -> Failure | None:
    """Return the failure of an attempt: that of gorush's answer if it is certain, else what its webhook reported."""
    if failure is not None and not failure.unknown:
        return failure
    return report or failure


def _kinds(settlement: Settlement, *, attempted: bool) -> list[EventKind]:
    """Return the kinds of the events of an outcome, in their order."""
    if settlement.failure is None:
        return [EventKind.DELIVERED]
    end = _ENDS.get(settlement.state)
    if attempted or end is None:
        return [failure_kind(settlement.failure), *([end] if end else [])]
    return [end]
