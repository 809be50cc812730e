"""One attempt: a post to gorush, and its outcome."""

import logging
import time
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from typing import Final

import psycopg
import structlog

from wakupush.gorush.client import PostResult
from wakupush.gorush.outcomes import PostOutcome
from wakupush.model.deliveries import DeliveryState, Settlement
from wakupush.model.failures import Failure, Route, route_state
from wakupush.postgres import deliveries
from wakupush.protocol.notification import notification
from wakupush.runtime import metrics, tracing
from wakupush.server.delivery.outcome import settle
from wakupush.server.delivery.posting import Attempted, Failed, Posting, Work
from wakupush.server.delivery.sender import Sender

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Topics without an app that one line of the log names.
MOST_TOPICS: Final = 5


def start(sender: Sender, postings: list[Posting], *, began: float, scheduled: bool = False) -> list[Future[Failed]]:
    """Start posting deliveries that are under our lease; the results are the failures that are final.

    Args:
        began: monotonic seconds before the transaction in which the leases began.
        scheduled: whether beat enqueued them.
    """
    settings = sender.settings
    work = Work(
        partial(attempt, sender, began=None if scheduled else began),
        partial(_put_back, sender),
        settings.gorush.batch_size,
        began + settings.delivery.lease - settings.longest_post,
    )
    futures = sender.posts.start(postings, work, scheduled=scheduled)
    if without_target := [posting for posting in postings if posting.target is None]:
        device_gone: Future[Failed] = Future()
        device_gone.set_result(_failed(settle(sender, without_target, [Failure.DEVICE_GONE] * len(without_target))))
        futures.append(device_gone)
    return futures


def wait_for(futures: Iterable[Future[Failed]], seconds: float) -> Failed:
    """Return the failures of those posts that end within `seconds`; the others go on.

    A post that ends with an error of ours, for example because Postgres failed, leaves its own failures out alone.
    """
    deadline = time.monotonic() + seconds
    failed: Failed = {}
    for future in futures:
        try:
            failed |= future.result(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            continue
        except Exception:
            log.exception("post_failed")
    return failed


def attempt(sender: Sender, post: list[Posting], probe: bool = False, *, began: float | None = None) -> Attempted:
    """Post deliveries that are under our lease, and store the outcomes.

    If gorush refuses a post of several as a whole, nothing is stored: one of them may be to blame.

    Args:
        post: all of one app and platform.
        probe: whether the route is known to be broken.
        began: monotonic seconds from which on the time of a success counts; None if it does not.
    """
    app, platform = app_platform = post[0].delivery.app_platform
    notifications = [
        notification(sender.profiles.of(app), posting.delivery, posting.target, sender.identity, sender.now())
        for posting in post
        if posting.target is not None
    ]
    if log.is_enabled_for(logging.DEBUG):
        for posting, posted in zip(post, notifications, strict=True):
            # gorush's own log knows the notification by its notif_id.
            facts = {"trace_id": posting.delivery.trace_id, "attempt": posting.delivery.attempt}
            log.debug("posting", notif_id=posted.notif_id, **facts)
    start_monotonic, start_time = time.monotonic(), sender.now()
    client = sender.gorush.get(app)
    if client is None:
        topics = {posting.target.apn_topic for posting in post if posting.target is not None}
        log.error("app_gone", topics=sorted(topics)[:MOST_TOPICS])
        answer = PostResult([Failure.APP_GONE] * len(post))
    else:
        answer = client.post(notifications)
        # A slow Postgres says nothing about the route.
        sender.posts.slots.end(app_platform)
        metrics.POST_SECONDS.labels(*app_platform.labels).observe(time.monotonic() - start_monotonic)
    if tracing.is_on():
        for posting in post:
            if posting.delivery.trace_id is None:
                continue
            attributes: tracing.Attributes = {
                "app": app or None,
                "platform": platform.label,
                "attempt": posting.delivery.attempt,
            }
            tracing.record("post", posting.delivery.trace_id, start_time, sender.now(), attributes)
    if len(post) > 1 and all(outcome is Failure.GORUSH_REFUSED for outcome in answer.outcomes):
        log.warning("post_refused", app=app, platform=platform.label, deliveries=len(post))
        return Attempted(refused=post)
    settlements = settle(sender, post, answer.outcomes, retry_after=answer.retry_after, probe=probe)
    if began is not None:
        reached = [one.delivery.installation for one in settlements if one.failure is None and one.proven]
        sender.post_times.note(reached, time.monotonic() - began)
    stored_results = [(settlement.failure, settlement.proven) for settlement in settlements]
    results = stored_results or [
        (outcome, posting.proven) for posting, outcome in zip(post, answer.outcomes, strict=True)
    ]
    return Attempted(
        platform_failures=_platform_failures(post, answer.outcomes),
        outcomes=[outcome for outcome, _ in results],
        routes=[route_state(outcome, proven=proven) for outcome, proven in results],
        failed=_failed(settlements),
    )


def _put_back(sender: Sender, postings: list[Posting]) -> None:
    """Leave postings to beat. If Postgres fails they come back when their lease ends, and other posts go on."""
    metrics.DELIVERIES_DEFERRED.labels(*postings[0].delivery.app_platform.labels).inc(len(postings))
    try:
        with sender.pool.connection() as connection:
            deliveries.put_back(connection, [posting.delivery for posting in postings])
    except psycopg.Error as error:
        log.warning("not_put_back", deliveries=len(postings), error=type(error).__name__)
        return
    sender.task_events.report_deferred(postings)


def _platform_failures(post: list[Posting], outcomes: list[PostOutcome]) -> list[Failure]:
    """Return the failures that no stranger can cause, for example with a device token that is made up."""
    return [
        outcome
        for posting, outcome in zip(post, outcomes, strict=True)
        if outcome is not None and (posting.proven or route_state(outcome, proven=False) is Route.BROKEN)
    ]


def _failed(settlements: list[Settlement]) -> Failed:
    return {
        settlement.delivery.delivery_key: settlement.failure
        for settlement in settlements
        if settlement.state is DeliveryState.FAILED and settlement.failure is not None
    }
