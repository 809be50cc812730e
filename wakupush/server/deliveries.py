"""Delivering: one attempt through gorush, and what it comes to."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import structlog
from tenacity import retry, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from wakupush import metrics
from wakupush.events import Event, EventKind
from wakupush.failures import Failure, Retry
from wakupush.gorush.backoff import next_wait
from wakupush.gorush.batches import split
from wakupush.gorush.notification import Notification, Platform
from wakupush.protocol import notification as texts
from wakupush.protocol.registration import TokenType
from wakupush.queues import DELIVER, DISPATCH
from wakupush.server import tokens
from wakupush.server.batch import count_events
from wakupush.server.faults import INFRASTRUCTURE
from wakupush.settings import STORE_SECONDS
from wakupush.state import deliveries, events, registrations
from wakupush.state.deliveries import Delivery, Settlement, State

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from psycopg import Connection

    from wakupush.server.context import Context, Resources
    from wakupush.state.deliveries import Due
    from wakupush.state.registrations import Target

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds for which a task waits for its posts before it leaves them to themselves.
WAIT_SECONDS = 1.5
#: Failures by delivery key, as far as they are final.
Failed = dict[bytes, Failure]


@dataclass(frozen=True, slots=True)
class Posting:
    """A delivery and where it goes; without a target its device is gone."""

    delivery: Delivery
    target: Target | None


def start(context: Context, postings: list[Posting]) -> list[Future[Failed]]:
    """Start posting deliveries that are under our lease; the results are the failures that are final.

    The posts of a platform share its slots that are free. What finds none waits for the schedule.
    """
    settings = context.settings
    a_post = settings.gorush.timeout + settings.gorush.connect_timeout + STORE_SECONDS
    until = time.monotonic() + settings.delivery.lease - a_post
    futures = []
    for platform, posts in _posts_by_platform(context, postings).items():
        lanes = context.posts.reserve(platform, len(posts))
        futures += [
            context.posts.submit(platform, partial(_work_through, context, posts[lane::lanes], until))
            for lane in range(lanes)
        ]
        if not lanes:
            _put_back(context, posts)
    return futures


def _posts_by_platform(context: Context, postings: list[Posting]) -> dict[TokenType, list[list[Posting]]]:
    """Return the posts to make, for each platform: single ones where gorush's log could lose a failure."""
    by_key = {posting.delivery.delivery_key.hex(): posting for posting in postings}
    reachable = [_notification(context, posting.delivery, posting.target) for posting in postings if posting.target]
    posts = [
        [by_key[each.notif_id] for each in post]
        for post in split(reachable, context.settings.gorush.batch_size, context.caution, time.monotonic())
    ]
    posts += [[posting] for posting in postings if posting.target is None]
    platforms: dict[TokenType, list[list[Posting]]] = {}
    for post in posts:
        platforms.setdefault(post[0].delivery.platform, []).append(post)
    return platforms


def _work_through(context: Context, posts: list[list[Posting]], until: float) -> Failed:
    """Make posts one after another, as long as their leases cover the next one (monotonic seconds)."""
    failed: Failed = {}
    for position, post in enumerate(posts):
        if time.monotonic() > until:
            _put_back(context, posts[position:])
            break
        failed |= attempt(context, post)
    return failed


def _put_back(context: Context, posts: list[list[Posting]]) -> None:
    waiting = [posting.delivery for post in posts for posting in post]
    metrics.DELIVERIES_DEFERRED.inc(len(waiting))
    with context.pool.connection() as connection:
        deliveries.put_back(connection, waiting)


def attempt(context: Context, post: list[Posting]) -> Failed:
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
        settled = _store(context, settlements, len(post))
    except INFRASTRUCTURE as error:
        # The leases end, and the deliveries come back as unknown.
        log.error(  # noqa: TRY400 - the traceback says nothing more
            "outcomes_not_stored", deliveries=len(post), error=type(error).__name__
        )
        return {}
    return {
        settlement.delivery.delivery_key: settlement.failure
        for settlement in settled
        if settlement.state is State.FAILED and settlement.failure is not None
    }


def deliver(context: Context, delivery_keys: list[bytes], begun: int) -> None:
    """Make the next attempt of deliveries that the schedule enqueued, unless somebody else began it."""
    settings = context.settings.delivery
    with context.pool.connection() as connection:
        taken = deliveries.take(connection, delivery_keys, begun=begun, seconds=settings.lease)
        happened = [
            _event(context, _before(delivery), EventKind.UNKNOWN, Failure.LEASE_LOST)
            for delivery in taken
            if delivery.failure is Failure.LEASE_LOST
        ]
        given_up = [settlement for delivery in taken if (settlement := _give_up(context, delivery)) is not None]
        for settlement in deliveries.settle(connection, given_up):
            kind = EventKind.EXPIRED if settlement.state is State.EXPIRED else EventKind.DEAD_LETTER
            happened.append(_event(context, _before(settlement.delivery), kind, settlement.failure))
        over = {settlement.delivery.delivery_key for settlement in given_up}
        going_on = [delivery for delivery in taken if delivery.delivery_key not in over]
        targets = registrations.targets(connection, {delivery.installation for delivery in going_on})
        events.add(connection, happened)
    count_events(happened)
    postings = [Posting(delivery, targets.get(delivery.installation)) for delivery in going_on]
    wait_for(start(context, postings), WAIT_SECONDS)


def _before(delivery: Delivery) -> Delivery:
    """Return a delivery as of the attempt before the one that taking it began."""
    return replace(delivery, attempt=delivery.attempt - 1)


def _give_up(context: Context, delivery: Delivery) -> Settlement | None:
    if delivery.expired:
        return Settlement(delivery=delivery, state=State.EXPIRED, failure=Failure.DELIVERY_EXPIRED)
    if delivery.attempt > context.settings.delivery.max_attempts:
        failure = delivery.failure or Failure.ATTEMPTS_EXHAUSTED
        return Settlement(delivery=delivery, state=State.DEAD_LETTER, failure=failure)
    return None


def wait_for(futures: Iterable[Future[Failed]], seconds: float) -> Failed:
    """Return the failures of those posts that end within `seconds`; the others go on."""
    deadline = time.monotonic() + seconds
    failed: Failed = {}
    for future in futures:
        try:
            failed |= future.result(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            continue
    return failed


def claim_due(resources: Resources) -> int:
    """Enqueue the next attempts of deliveries whose time has come; return how many."""
    settings = resources.settings.delivery
    with resources.pool.connection() as connection:
        due = deliveries.claim(connection, limit=settings.claim_batch, seconds=settings.claim)
    size = resources.settings.gorush.batch_size
    for _, group in groupby(sorted(due, key=_alike), key=_alike):
        members = list(group)
        for position in range(0, len(members), size):
            _enqueue(resources, members[position : position + size])
    return len(due)


def _alike(due: Due) -> tuple[int, int, str]:
    return due.platform, due.begun, due.failure.label if due.failure else ""


def _enqueue(resources: Resources, due: list[Due]) -> None:
    """Enqueue one attempt of deliveries of one platform; its argument is what an operator reads in Flower."""
    platform, begun, failure = _alike(due[0])
    most = resources.settings.delivery.max_attempts
    count = f"{len(due)} {TokenType(platform).platform}"
    resources.app.send_task(
        DELIVER,
        args=[[one.delivery_key.hex() for one in due], begun],
        queue=DISPATCH.name,
        task_id=due[0].task_id,
        headers={"messages": len(due), "seen": resources.now()},
        argsrepr=f"(attempt {begun + 1} of {most}, {count}, after {failure or 'waiting'})",
        kwargsrepr="",
    )


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
        suspected = posting.target is not None and posting.target.suspected
        return Settlement(delivery=posting.delivery, state=State.DELIVERED, version=version, suspected=suspected)
    state, wait = _after(context, posting.delivery, failure)
    return Settlement(delivery=posting.delivery, state=state, failure=failure, wait=wait, version=version)


def _after(context: Context, delivery: Delivery, failure: Failure) -> tuple[State, float | None]:
    """Return the state after an attempt that failed, and the seconds until the next one."""
    wait = next_wait(failure, delivery.attempt, context.settings.delivery)
    if wait is not None:
        return State.PENDING, wait
    return State.FAILED if failure.retry is Retry.NEVER else State.DEAD_LETTER, None


@retry(
    retry=retry_if_exception_type(INFRASTRUCTURE),
    wait=wait_random_exponential(multiplier=0.2, max=3),
    stop=stop_after_attempt(8) | stop_after_delay(STORE_SECONDS),
    reraise=True,
)
def _store(context: Context, settlements: list[Settlement], batch_size: int) -> list[Settlement]:
    """Store what attempts came to, as far as their leases are still ours; return it as it was stored.

    What gorush's webhook told meanwhile counts where gorush's answer tells of no failure, or leaves the outcome open.
    """
    with context.pool.connection() as connection:
        told = deliveries.lock(connection, [settlement.delivery for settlement in settlements])
        failures = [_told(settlement, told.get(settlement.delivery.delivery_key)) for settlement in settlements]
        doubted = tokens.doubted(connection, context.settings.tokens, failures)
        settled = deliveries.settle(
            connection,
            [
                _revised(context, settlement, tokens.believed(failure, settlement.delivery.platform, doubted))
                for settlement, failure in zip(settlements, failures, strict=True)
            ],
        )
        happened = [
            _event(context, settlement.delivery, kind, settlement.failure, batch_size)
            for settlement in settled
            for kind in _kinds(settlement)
        ]
        happened += _learn(context, connection, settled, doubted)
        events.add(connection, happened)
    count_events(happened)
    return settled


def _told(settlement: Settlement, feedback: Failure | None) -> Failure | None:
    """Return the failure of an attempt, by what gorush answered and by what its webhook told."""
    failure = settlement.failure
    return feedback or failure if failure is None or failure.unknown else failure


def _revised(context: Context, settlement: Settlement, failure: Failure | None) -> Settlement:
    """Return what an attempt came to if it failed so."""
    if failure is None or failure is settlement.failure:
        return settlement
    state, wait = _after(context, settlement.delivery, failure)
    return replace(settlement, state=state, failure=failure, wait=wait)


def _learn(
    context: Context,
    connection: Connection,
    settled: list[Settlement],
    doubted: frozenset[TokenType],
    *,
    tried: bool = True,
) -> list[Event]:
    """Learn which device tokens are dead, and return the events of that."""
    died = tokens.learn(connection, settled, doubted, tried=tried)
    return [_event(context, settlement.delivery, EventKind.TOKEN_DIED, settlement.failure) for settlement in died]


def apply_feedback(context: Context, delivery_keys: list[bytes]) -> None:
    """Make deliveries that read as delivered failed, as gorush's webhook told of them; a repeat does nothing."""
    with context.pool.connection() as connection:
        settled = deliveries.apply_feedback(connection, delivery_keys)
        happened = [_event(context, each.delivery, EventKind.FAILED, each.failure) for each in settled]
        doubted = tokens.doubted(connection, context.settings.tokens, [each.failure for each in settled])
        happened += _learn(context, connection, settled, doubted, tried=False)
        events.add(connection, happened)
    count_events(happened)


def _kinds(settlement: Settlement) -> list[EventKind]:
    if settlement.failure is None:
        return [EventKind.ATTEMPT, EventKind.DELIVERED]
    result = EventKind.UNKNOWN if settlement.failure.unknown else EventKind.FAILED
    end = [EventKind.DEAD_LETTER] if settlement.state is State.DEAD_LETTER else []
    return [EventKind.ATTEMPT, result, *end]


def _event(
    context: Context, delivery: Delivery, kind: EventKind, failure: Failure | None, batch_size: int | None = None
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
