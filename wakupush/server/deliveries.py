"""Delivering: one attempt through gorush, and what it comes to."""

from __future__ import annotations

import random
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import structlog
from tenacity import retry, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from wakupush import metrics, tracing
from wakupush.events import Event, EventKind
from wakupush.failures import Failure, Retry, Route
from wakupush.gorush.backoff import next_wait
from wakupush.gorush.batches import split
from wakupush.gorush.notification import Notification, Platform, notif_id
from wakupush.protocol import notification as texts
from wakupush.protocol.registration import TokenType
from wakupush.protocol.request import NotificationType
from wakupush.queues import DELIVER, DISPATCH
from wakupush.server import tokens
from wakupush.server.batch import count_events
from wakupush.server.faults import INFRASTRUCTURE
from wakupush.server.task_events import Lead, argument
from wakupush.settings import STORE_SECONDS
from wakupush.state import deliveries, events, registrations
from wakupush.state.deliveries import Delivery, Settlement, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from psycopg import Connection

    from wakupush.server.context import Context, Resources
    from wakupush.settings import DeliverySettings
    from wakupush.state.deliveries import Due
    from wakupush.state.registrations import Target

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds for which a task waits for its posts before it leaves them to themselves.
WAIT_SECONDS = 1.5
#: Posts that hold all slots of a platform longer than this open its breaker. All being taken is no fault by itself:
#: posted one by one, a burst fills them while every post is quick.
HANG_SECONDS = 5.0
#: Failures by delivery key, as far as they are final.
Failed = dict[bytes, Failure]


@dataclass(frozen=True, slots=True)
class Posting:
    """A delivery and where it goes; without a target its device is gone."""

    delivery: Delivery
    target: Target | None
    #: Whether Flower shows this attempt. The first ones inside batches are shown if they fail in passing.
    shown: bool = False
    #: If the task that makes this attempt has the delivery's id.
    lead: Lead | None = None


def times_to_live(settings: DeliverySettings) -> dict[NotificationType, float]:
    """Return the seconds after which deliveries expire, by the type of notification."""
    return {
        NotificationType.MESSAGE: settings.message_time_to_live,
        NotificationType.MENTION: settings.mention_time_to_live,
        NotificationType.REQUEST_TO_JOIN_COMMUNITY: settings.join_request_time_to_live,
    }


def start(context: Context, postings: list[Posting], *, scheduled: bool = False) -> list[Future[Failed]]:
    """Start posting deliveries that are under our lease; the results are the failures that are final.

    The posts of a platform share its slots that are free. What finds none, or a breaker that is open, waits for the
    schedule.

    Args:
        context: of this process.
        postings: what is to be posted.
        scheduled: whether the schedule enqueued them: then they leave slots to new requests.
    """
    settings = context.settings
    a_post = settings.gorush.timeout + settings.gorush.connect_timeout + STORE_SECONDS
    until = time.monotonic() + settings.delivery.lease - a_post
    futures = []
    gone = [posting for posting in postings if posting.target is None]
    if gone:
        settled: Future[Failed] = Future()
        settled.set_result(attempt(context, gone))
        futures.append(settled)
    for platform, posts in _posts_by_platform(context, postings).items():
        futures += _start_platform(context, platform, posts, until, scheduled=scheduled)
    return futures


def _start_platform(
    context: Context, platform: TokenType, posts: list[list[Posting]], until: float, *, scheduled: bool
) -> list[Future[Failed]]:
    """Start the posts of a platform: all of them in the slots that are free, or as many probes as its breaker gives."""
    lanes = context.posts.reserve(platform, len(posts), scheduled=scheduled)
    if not lanes:
        if context.posts.hang(platform, HANG_SECONDS, scheduled=scheduled):
            context.breaker.open(platform)
        _put_back(context, posts)
        return []
    waiting: list[list[Posting]] = []
    probes = context.breaker.take_probes(platform, lanes)
    if probes is not None:
        context.posts.release(platform, lanes - probes, scheduled=scheduled)
        singles = [[posting] for post in posts for posting in post]
        lanes, posts, waiting = probes, singles[:probes], singles[probes:]
    work = partial(_work_through, context, platform, until=until, probe=probes is not None)
    futures = [
        context.posts.submit(platform, partial(work, posts[lane::lanes]), scheduled=scheduled) for lane in range(lanes)
    ]
    _put_back(context, waiting)
    return futures


def _posts_by_platform(context: Context, postings: list[Posting]) -> dict[TokenType, list[list[Posting]]]:
    """Return the posts to make, for each platform: single ones where gorush's log could lose a failure."""
    by_id = {_notif_id(posting.delivery): posting for posting in postings}
    reachable = [_notification(context, posting.delivery, posting.target) for posting in postings if posting.target]
    platforms: dict[TokenType, list[list[Posting]]] = {}
    for post in split(reachable, context.settings.gorush.batch_size, context.caution, time.monotonic()):
        members = [by_id[each.notif_id] for each in post]
        platforms.setdefault(TokenType(post[0].platform.value), []).append(members)
    return platforms


def _work_through(
    context: Context, platform: TokenType, posts: list[list[Posting]], *, until: float, probe: bool
) -> Failed:
    """Make posts one after another, while the breaker lets them and their leases cover one more.

    A fault of ours ends that, too, and is logged here, for nobody may be waiting. The post that it met comes back as
    unknown when its lease ends; those after it were not made.

    Args:
        context: of this process.
        platform: of all of them.
        posts: at least one.
        until: monotonic seconds after which none is begun.
        probe: whether they are probes.
    """
    failed: Failed = {}
    for position, post in enumerate(posts):
        # The first one was let through just now, and every lease covers one.
        if position and (time.monotonic() > until or not context.breaker.is_closed(platform)):
            _put_back(context, posts[position:])
            break
        context.posts.begin(platform)
        try:
            failed |= attempt(context, post, probe=probe)
        except Exception:
            log.exception("post_failed", deliveries=len(post), put_back=len(posts) - position - 1)
            _put_back(context, posts[position + 1 :])
            break
    return failed


def _put_back(context: Context, posts: list[list[Posting]]) -> None:
    """Leave deliveries to the schedule, without an attempt."""
    if not posts:
        return
    waiting = [posting for post in posts for posting in post]
    metrics.DELIVERIES_DEFERRED.labels(waiting[0].delivery.platform.platform).inc(len(waiting))
    with context.pool.connection() as connection:
        deliveries.put_back(connection, [posting.delivery for posting in waiting])
    context.task_events.send([context.task_events.put_off(posting.delivery) for posting in waiting if posting.shown])


def attempt(context: Context, post: list[Posting], *, probe: bool = False) -> Failed:
    """Post deliveries that are under our lease, store what comes of it, and return those that failed for good.

    A probe through a broken route counts no attempt, unless the push may have arrived: an outage is to use up none.
    """
    settlements = [_settlement(context, posting, Failure.DEVICE_GONE) for posting in post if posting.target is None]
    pairs = [(posting, posting.target) for posting in post if posting.target is not None]
    if pairs:
        notifications = [_notification(context, posting.delivery, target) for posting, target in pairs]
        for posting, _ in pairs:
            # gorush's own log knows the notification by its notif_id.
            delivery = posting.delivery
            log.debug("posting", trace_id=delivery.trace_id, notif_id=_notif_id(delivery), attempt=delivery.attempt)
        begun, begun_at = time.monotonic(), context.now()
        posted = context.gorush.post(notifications)
        platform = TokenType(notifications[0].platform.value)
        for posting, _ in pairs:
            facts: tracing.Attributes = {"platform": platform.platform, "attempt": posting.delivery.attempt}
            tracing.record("post", posting.delivery.trace_id, begun_at, context.now(), facts)
        metrics.POST_SECONDS.labels(platform.platform).observe(time.monotonic() - begun)
        context.caution.note(notifications, posted.outcomes, time.monotonic())
        settlements += [
            _settlement(context, posting, failure, retry_after=posted.retry_after, probe=probe)
            for (posting, _), failure in zip(pairs, posted.outcomes, strict=True)
        ]
    try:
        settled = _store(context, settlements, len(post))
    except INFRASTRUCTURE as error:
        # The leases end, and the deliveries come back as unknown.
        log.error(  # noqa: TRY400 - the traceback says nothing more
            "outcomes_not_stored", deliveries=len(post), error=type(error).__name__
        )
        settled = []
    if pairs:
        # As it was stored: what gorush's webhook told counts, too.
        outcomes = [settlement.failure for settlement in settled] or posted.outcomes
        context.breaker.note(platform, outcomes, probe=probe)
    _show(context, post, settled)
    return {
        settlement.delivery.delivery_key: settlement.failure
        for settlement in settled
        if settlement.state is State.FAILED and settlement.failure is not None
    }


def _show(context: Context, post: list[Posting], settled: list[Settlement]) -> None:
    """Show in Flower what attempts came to, unless the task that has the delivery's id does so."""
    by_key = {posting.delivery.delivery_key: posting for posting in post}
    told = []
    for settlement in settled:
        posting = by_key[settlement.delivery.delivery_key]
        if posting.lead and posting.lead.tell(settlement):
            continue
        if not posting.shown and settlement.state is State.PENDING:
            told += context.task_events.begun(settlement.delivery)
        if posting.shown or settlement.state is State.PENDING:
            told.append(context.task_events.ended(settlement))
    context.task_events.send(told)


def deliver(context: Context, claimed: Mapping[bytes, int], task_id: str) -> Settlement | None:
    """Make the next attempt of deliveries that the schedule enqueued, unless somebody else began it.

    Args:
        context: of this process.
        claimed: delivery keys, and how many attempts were begun when the schedule claimed them.
        task_id: of the task that does this; one of the deliveries has the same.

    Returns:
        What the attempt of that delivery came to, for the task to end so. None if that is not known yet, or if there
        was none; then whoever stores it shows it.
    """
    settings = context.settings.delivery
    lead = Lead()
    with context.pool.connection() as connection:
        taken = deliveries.take(connection, claimed, seconds=settings.lease)
        happened = [
            _event(context, _before(delivery), EventKind.UNKNOWN, Failure.LEASE_LOST)
            for delivery in taken
            if delivery.failure is Failure.LEASE_LOST
        ]
        given_up = [settlement for delivery in taken if (settlement := _give_up(context, delivery)) is not None]
        settled = deliveries.settle(connection, given_up)
        for settlement in settled:
            kind = EventKind.EXPIRED if settlement.state is State.EXPIRED else EventKind.DEAD_LETTER
            happened.append(_event(context, _before(settlement.delivery), kind, settlement.failure))
        targets = registrations.targets(connection, {delivery.installation for delivery in taken})
        events.add(connection, happened)
    count_events(happened)
    postings = [
        Posting(
            delivery,
            targets.get(delivery.installation),
            shown=True,
            lead=lead if delivery.task_id == task_id else None,
        )
        for delivery in taken
    ]
    _show_begun(context, postings)
    _show(context, postings, settled)
    over = {settlement.delivery.delivery_key for settlement in given_up}
    going_on = [posting for posting in postings if posting.delivery.delivery_key not in over]
    wait_for(start(context, going_on, scheduled=True), WAIT_SECONDS)
    return lead.leave()


def _show_begun(context: Context, postings: list[Posting]) -> None:
    """Show in Flower that attempts begin; the task shows the one that has its id, unless its last one was lost."""
    shown = context.task_events
    told = []
    for posting in postings:
        delivery = posting.delivery
        lost = delivery.failure is Failure.LEASE_LOST
        if lost:
            metrics.RETRIES.labels(delivery.platform.platform, Failure.LEASE_LOST.label).inc()
            told.append(shown.retried(delivery, Failure.LEASE_LOST))
        if posting.lead is None:
            told += shown.begun(delivery)
        elif lost:
            told.append(shown.started(delivery))
    shown.send(told)


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
    """Enqueue the next attempts of deliveries whose time has come; return how many.

    No more than `claim_queue` tasks wait in the dispatch queue then, so that a backlog does not come before new
    requests; and only what the platform's breaker lets through. Chance decides which comes first: the backlog of one
    is not to keep out the others.
    """
    settings = resources.settings.delivery
    size = resources.settings.gorush.batch_size
    claimed = 0
    for platform in random.sample(list(TokenType), len(TokenType)):
        room = settings.claim_queue - resources.redis.llen(DISPATCH.name)
        most = resources.breaker.claimable(platform, room * size)
        if most <= 0:
            continue
        with resources.pool.connection() as connection:
            due = deliveries.claim(connection, platform, limit=most, seconds=settings.claim)
        due.sort(key=lambda one: (one.begun, one.failure.label if one.failure else ""))
        for position in range(0, len(due), size):
            _enqueue(resources, due[position : position + size])
        claimed += len(due)
    return claimed


def _enqueue(resources: Resources, due: list[Due]) -> None:
    """Enqueue one attempt of each of several deliveries of a platform, under the id and with the facts of the first."""
    first = due[0]
    most = resources.settings.delivery.max_attempts
    resources.app.send_task(
        DELIVER,
        args=[{one.delivery_key.hex(): one.begun for one in due}],
        queue=DISPATCH.name,
        task_id=first.task_id,
        retries=first.begun,
        headers={"messages": len(due), "seen": resources.now()},
        argsrepr=argument(first.begun + 1, most, len(due), first.platform, first.failure),
        kwargsrepr="",
    )


def _notif_id(delivery: Delivery) -> str:
    return notif_id(delivery.delivery_key, delivery.attempt)


def _notification(context: Context, delivery: Delivery, target: Target) -> Notification:
    is_ios = target.platform is TokenType.APN
    return Notification(
        notif_id=_notif_id(delivery),
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


def _settlement(
    context: Context, posting: Posting, failure: Failure | None, *, retry_after: float = 0.0, probe: bool = False
) -> Settlement:
    delivery = posting.delivery
    version = posting.target.version if posting.target else None
    if failure is None:
        suspected = posting.target is not None and posting.target.suspected
        return Settlement(delivery=delivery, state=State.DELIVERED, version=version, suspected=suspected)
    counted = not (probe and failure.route is Route.BROKEN and not failure.unknown)
    state, wait = _after(context, delivery, failure, counted=counted, retry_after=retry_after)
    return Settlement(delivery=delivery, state=state, failure=failure, wait=wait, counted=counted, version=version)


def _after(
    context: Context, delivery: Delivery, failure: Failure, *, counted: bool = True, retry_after: float = 0.0
) -> tuple[State, float | None]:
    """Return the state after an attempt that failed, and the seconds until the next one."""
    begun = delivery.attempt if counted else max(1, delivery.attempt - 1)
    wait = next_wait(failure, begun, context.settings.delivery, at_least=retry_after)
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
    for settlement in settled:
        if settlement.state is State.PENDING and settlement.failure is not None:
            metrics.RETRIES.labels(settlement.delivery.platform.platform, settlement.failure.label).inc()
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
