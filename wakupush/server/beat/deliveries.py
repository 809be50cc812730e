"""Jobs about deliveries: enqueueing what is due, and showing what an operator has to look at."""

import math
import random
from typing import Any, Final

import structlog

from wakupush.model.deliveries import EXPIRED_MOST, Due, attempt_argument
from wakupush.model.platforms import AppPlatform
from wakupush.model.queues import DELIVER, DISPATCH, FEEDBACK
from wakupush.postgres import dead_letters, due
from wakupush.runtime import metrics
from wakupush.server.beat.beat import Beat
from wakupush.server.delivery.apps import app_platforms
from wakupush.server.delivery.tokens import stopped

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Deliveries with a late failure that one run claims at most, and those in one task.
CLAIMED_MOST: Final = 500
TASK_SIZE: Final = 100


def claim_due(beat: Beat) -> int:
    """Enqueue the next attempts of deliveries whose time has come, and the end of those that expired; return how many.

    Chance decides which app and platform comes first: the backlog of one is not to keep out the others. The metric of
    the breakers is set, also of those without anything due.
    """
    with beat.pool.connection() as connection:
        backlogs = due.app_platforms(connection)
    waiting = beat.redis.llen(DISPATCH.name)
    for app_platform in {*app_platforms(beat.settings), *backlogs}:
        beat.breaker.show(app_platform)
    beat.pace.look(waiting)
    if not waiting:
        beat.breaker.note_taken()
    enqueued = _end_expired(beat)
    return enqueued + sum(_claim_due_of(one, beat) for one in random.sample(backlogs, len(backlogs)))


def _claim_due_of(app_platform: AppPlatform, beat: Beat) -> int:
    """Enqueue the next attempts of an app and platform, as many as its pace and its breaker allow; return how many."""
    size, breaker, now = beat.settings.gorush.batch_size, beat.breaker, beat.clock()
    closed, full = breaker.is_closed(app_platform), breaker.is_full(app_platform)
    most = breaker.claimable(app_platform, beat.pace.allowed(app_platform, size, now=now, closed=closed, full=full))
    if most <= 0:
        return 0
    with beat.pool.connection() as connection:
        due_deliveries = due.claim(connection, app_platform, limit=most, seconds=beat.settings.delivery.claim)
    due_deliveries.sort(key=lambda one: (one.begun, one.failure.label if one.failure else ""))
    parts = [due_deliveries[position : position + size] for position in range(0, len(due_deliveries), size)]
    for part in parts:
        _enqueue(beat, part)
    beat.pace.note(app_platform, len(due_deliveries), len(parts), now=now)
    breaker.note_enqueued(app_platform, len(due_deliveries))
    return len(due_deliveries)


def _end_expired(beat: Beat) -> int:
    """Enqueue the end of pending deliveries that expired, whatever their breakers say; return how many."""
    now = beat.clock()
    most = beat.pace.allowed(None, EXPIRED_MOST, now=now)
    if most <= 0:
        return 0
    with beat.pool.connection() as connection:
        expired = due.expired(connection, most)
    tasks = math.ceil(expired / EXPIRED_MOST)
    for _ in range(tasks):
        _send(beat, DELIVER, {}, 1, f"(up to {EXPIRED_MOST} that expired)")
    beat.pace.note(None, expired, tasks, now=now)
    return expired


def _enqueue(beat: Beat, together: list[Due]) -> None:
    """Enqueue one attempt for each of these deliveries of an app and platform: a task with the first's id and facts."""
    first = together[0]
    most = beat.settings.delivery.max_attempts
    begun_attempts = {one.delivery_key.hex(): one.begun for one in together}
    text = attempt_argument(first.begun + 1, most, len(together), first.app_platform, first.failure)
    _send(beat, DELIVER, begun_attempts, len(together), text, task_id=first.task_id, retries=first.begun)


def enqueue_feedback(beat: Beat) -> int:
    """Enqueue deliveries stored as delivered whose failure gorush's webhook reported late; return how many."""
    claim = beat.settings.delivery.claim
    with beat.pool.connection() as connection:
        due_deliveries = due.claim_feedback(connection, limit=CLAIMED_MOST, seconds=claim)
    for position in range(0, len(due_deliveries), TASK_SIZE):
        part = due_deliveries[position : position + TASK_SIZE]
        keys = [delivery_key.hex() for delivery_key in part]
        _send(beat, FEEDBACK, keys, len(part), f"({len(part)} deliveries that had read as delivered)")
    return len(due_deliveries)


def _send(beat: Beat, task: str, argument: object, messages: int, text: str, **options: Any) -> None:
    """Put a task into the dispatch queue.

    Args:
        argument: its only one.
        messages: how many it counts as.
        text: what is shown as its argument.
        options: more of Celery's.
    """
    beat.app.send_task(
        task,
        args=[argument],
        queue=DISPATCH.name,
        headers={"messages": messages, "seen": beat.now()},
        argsrepr=text,
        kwargsrepr="",
        **options,
    )


def count_dead_letters(beat: Beat) -> None:
    """Show in the metrics how many dead letters there are."""
    with beat.pool.connection() as connection:
        counts = dead_letters.counts(connection)
    metrics.DEAD_LETTERS.clear()
    for (app_platform, reason), count in counts.items():
        metrics.DEAD_LETTERS.labels(*app_platform.labels, reason).set(count)


def watch_marking(beat: Beat) -> frozenset[AppPlatform]:
    """Report the apps and platforms of which so many tokens are bad that none is marked dead: an operator must act."""
    with beat.pool.connection() as connection:
        distrusted = stopped(connection, beat.settings.tokens)
    # Also of apps that are not in the settings any more.
    metrics.TOKEN_MARKING_STOPPED.clear()
    for one in {*app_platforms(beat.settings)} | distrusted:
        metrics.TOKEN_MARKING_STOPPED.labels(*one.labels).set(one in distrusted)
        if one in distrusted:
            log.error("token_marking_stopped", app=one.app, platform=one.platform.label)
    return distrusted
