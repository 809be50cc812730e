"""Delivering: one attempt through gorush, and what it comes to."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import structlog
from tenacity import retry, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from wakupush import metrics
from wakupush.events import Event, EventKind
from wakupush.failures import Failure, Retry, Token
from wakupush.gorush.backoff import next_wait
from wakupush.gorush.batches import split as split_notifications
from wakupush.gorush.notification import Notification, Platform
from wakupush.protocol import notification as texts
from wakupush.protocol.registration import TokenType
from wakupush.queues import DELIVER, DISPATCH
from wakupush.server.batch import count_events
from wakupush.server.faults import INFRASTRUCTURE
from wakupush.state import deliveries, events, registrations
from wakupush.state.deliveries import Delivery, Due, Settlement, State

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from wakupush.server.context import Context
    from wakupush.state.registrations import Target

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds for which a task waits for its posts before it leaves them to themselves.
WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Posting:
    """A delivery and where it goes; without a target its device is gone."""

    delivery: Delivery
    target: Target | None


def split(context: Context, postings: list[Posting]) -> list[list[Posting]]:
    """Return the posts to make: of one platform each, one by one where gorush's log could lose a failure."""
    by_key = {posting.delivery.delivery_key.hex(): posting for posting in postings}
    reachable = [_notification(context, posting.delivery, posting.target) for posting in postings if posting.target]
    batch_size = context.settings.gorush.batch_size
    posts = split_notifications(reachable, batch_size, context.caution, time.monotonic())
    gone = [posting for posting in postings if posting.target is None]
    return [[by_key[each.notif_id] for each in post] for post in posts] + ([gone] if gone else [])


def start(context: Context, postings: list[Posting]) -> list[Future[dict[bytes, Failure]]]:
    """Start posting deliveries that are under our lease; the results are what `attempt` returns.

    What finds no free slot waits for the schedule.
    """
    futures, waiting = [], []
    for post in split(context, postings):
        if context.posts.reserve():
            futures.append(context.posts.submit(partial(attempt, context, post)))
        else:
            waiting += [posting.delivery for posting in post]
    if waiting:
        metrics.DELIVERIES_DEFERRED.inc(len(waiting))
        with context.pool.connection() as connection:
            deliveries.put_back(connection, waiting)
    return futures


def attempt(context: Context, post: list[Posting]) -> dict[bytes, Failure]:
    """Post deliveries that are under our lease, store what comes of it, and return those that failed for good."""
    known: list[tuple[Posting, Failure | None]] = [
        (posting, Failure.DEVICE_GONE) for posting in post if posting.target is None
    ]
    pairs = [(posting, posting.target) for posting in post if posting.target is not None]
    if pairs:
        notifications = [_notification(context, posting.delivery, target) for posting, target in pairs]
        begun = time.monotonic()
        outcomes = context.gorush.post(notifications)
        metrics.POST_SECONDS.labels(notifications[0].platform.label).observe(time.monotonic() - begun)
        context.caution.note(notifications, outcomes, time.monotonic())
        known += zip((posting for posting, _ in pairs), outcomes, strict=True)
    settlements = [_settlement(context, posting, failure) for posting, failure in known]
    try:
        _store(context, settlements, len(post))
    except INFRASTRUCTURE as error:
        # The leases end, and the deliveries come back as unknown.
        log.error(  # noqa: TRY400 - the traceback says nothing more
            "outcomes_not_stored", deliveries=len(post), error=type(error).__name__
        )
        return {}
    return {
        settlement.delivery.delivery_key: settlement.failure
        for settlement in settlements
        if settlement.state is State.FAILED and settlement.failure is not None
    }


def deliver(context: Context, delivery_keys: list[bytes], attempt_number: int) -> None:
    """Make the next attempt of deliveries that the schedule claimed."""
    with context.pool.connection() as connection:
        mine = deliveries.take(connection, delivery_keys, attempt=attempt_number, lease=context.settings.delivery.lease)
        targets = registrations.targets(connection, {delivery.installation for delivery in mine})
    postings = [Posting(delivery, targets.get(delivery.installation)) for delivery in mine]
    wait_for(start(context, postings), WAIT_SECONDS)


def wait_for(futures: Iterable[Future[dict[bytes, Failure]]], seconds: float) -> dict[bytes, Failure]:
    """Return the failures of those posts that end within `seconds`; the others go on."""
    deadline = time.monotonic() + seconds
    failed: dict[bytes, Failure] = {}
    for future in futures:
        try:
            failed |= future.result(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            continue
    return failed


def claim_due(context: Context) -> int:
    """Claim deliveries whose time has come, and enqueue their next attempts; return how many were claimed."""
    settings = context.settings
    with context.pool.connection() as connection:
        claimed = deliveries.claim(connection, limit=settings.delivery.claim_batch, lease=settings.delivery.lease)
        happened = [_event(context, due, EventKind.UNKNOWN, Failure.LEASE_LOST) for due in claimed if due.lease_lost]
        given_up = [settlement for due in claimed if (settlement := _give_up(context, due)) is not None]
        for settlement in deliveries.settle(connection, given_up):
            kind = EventKind.EXPIRED if settlement.state is State.EXPIRED else EventKind.DEAD_LETTER
            happened.append(_event(context, settlement.delivery, kind, settlement.failure))
        events.add(connection, happened)
    count_events(happened)
    finished = {settlement.delivery.delivery_key for settlement in given_up}
    _enqueue(context, [due for due in claimed if due.delivery_key not in finished])
    return len(claimed)


def _give_up(context: Context, due: Due) -> Settlement | None:
    if due.expired:
        return Settlement(delivery=due, state=State.EXPIRED, failure=Failure.DELIVERY_EXPIRED)
    if due.attempt > context.settings.delivery.max_attempts:
        return Settlement(delivery=due, state=State.DEAD_LETTER, failure=due.failure or Failure.ATTEMPTS_EXHAUSTED)
    return None


def _enqueue(context: Context, due: list[Due]) -> None:
    def kind(one: Due) -> tuple[int, int, str]:
        return one.platform, one.attempt, one.failure.label if one.failure else ""

    size = context.settings.gorush.batch_size
    for (platform, attempt_number, failure), group in groupby(sorted(due, key=kind), key=kind):
        members = list(group)
        for position in range(0, len(members), size):
            part = members[position : position + size]
            context.app.send_task(
                DELIVER,
                args=[[one.delivery_key.hex() for one in part], attempt_number],
                queue=DISPATCH.name,
                task_id=part[0].task_id,
                headers={"messages": len(part), "seen": context.now()},
                argsrepr=_readable(context, len(part), TokenType(platform), attempt_number, failure),
                kwargsrepr="",
            )


def _readable(context: Context, count: int, platform: TokenType, attempt_number: int, failure: str) -> str:
    """Return what an operator reads in Flower about an attempt."""
    most = context.settings.delivery.max_attempts
    return f"(attempt {attempt_number} of {most}, {count} {platform.platform}, after {failure or 'waiting'})"


def _notification(context: Context, delivery: Delivery, target: Target) -> Notification:
    is_ios = target.platform is TokenType.APN
    return Notification(
        notif_id=delivery.delivery_key.hex(),
        token=target.device_token,
        platform=Platform(target.platform.value),
        message=texts.TEXTS[delivery.notification_type],
        topic=target.apn_topic if is_ios else "",
        data=texts.data(
            context.settings.gorush.dialect,
            key_hash=delivery.installation.key_hash,
            installation_id=target.installation_id,
            chat_id=delivery.chat_id,
            message=delivery.message,
        ),
        # A push whose outcome stayed unknown and that is posted again shows once.
        collapse_id=delivery.delivery_key.hex()[:32] if is_ios else "",
    )


def _settlement(context: Context, posting: Posting, failure: Failure | None) -> Settlement:
    version = posting.target.version if posting.target else None
    if failure is None:
        return Settlement(delivery=posting.delivery, state=State.DELIVERED, version=version)
    wait = next_wait(failure, posting.delivery.attempt, context.settings.delivery)
    if wait is not None:
        state = State.PENDING
    elif failure.retry is Retry.NEVER:
        state = State.FAILED
    else:
        state = State.DEAD_LETTER
    return Settlement(delivery=posting.delivery, state=state, failure=failure, wait=wait, version=version)


@retry(
    retry=retry_if_exception_type(INFRASTRUCTURE),
    wait=wait_random_exponential(multiplier=0.2, max=3),
    stop=stop_after_attempt(8) | stop_after_delay(20),
    reraise=True,
)
def _store(context: Context, settlements: list[Settlement], batch_size: int) -> None:
    """Store what attempts came to, as far as their leases are still ours."""
    happened = []
    with context.pool.connection() as connection:
        for settlement in deliveries.settle(connection, settlements):
            delivery, failure = settlement.delivery, settlement.failure
            happened += [_event(context, delivery, kind, failure, batch_size) for kind in _kinds(settlement)]
            if (
                failure is not None
                and failure.token is Token.DEAD
                and settlement.version is not None
                and registrations.token_died(connection, delivery.installation, settlement.version)
            ):
                happened.append(_event(context, delivery, EventKind.TOKEN_DIED, failure))
        events.add(connection, happened)
    count_events(happened)


def _kinds(settlement: Settlement) -> list[EventKind]:
    if settlement.failure is None:
        return [EventKind.ATTEMPT, EventKind.DELIVERED]
    result = EventKind.UNKNOWN if settlement.failure.unknown else EventKind.FAILED
    end = [EventKind.DEAD_LETTER] if settlement.state is State.DEAD_LETTER else []
    return [EventKind.ATTEMPT, result, *end]


def _event(
    context: Context, delivery: Delivery | Due, kind: EventKind, failure: Failure | None, batch_size: int | None = None
) -> Event:
    now = context.now()
    key_pseudonym, installation_pseudonym = context.identity.pseudonyms(delivery.installation)
    return Event(
        kind=kind,
        time=now,
        worker=context.worker,
        trace_id=delivery.trace_id,
        queue=DISPATCH.name,
        latency=max(0.0, now - delivery.seen),
        platform=delivery.platform.platform,
        failure=failure and failure.label,
        attempt=delivery.attempt,
        batch_size=batch_size,
        key_pseudonym=key_pseudonym,
        installation_pseudonym=installation_pseudonym,
    )
