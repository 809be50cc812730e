"""Jobs about deliveries: enqueueing what is due, and showing what an operator has to look at."""

import random
from typing import Final

import structlog

from wakupush.model.deliveries import Due, attempt_argument
from wakupush.model.platforms import Platform
from wakupush.model.queues import DELIVER, DISPATCH, FEEDBACK
from wakupush.postgres import dead_letters, due
from wakupush.runtime import metrics
from wakupush.server.beat.resources import Beat
from wakupush.server.delivery.tokens import stopped

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Deliveries with a late failure that one run claims at most, and those in one task.
CLAIMED_MOST: Final = 500
TASK_SIZE: Final = 100


def claim_due(resources: Beat) -> int:
    """Enqueue the next attempts of deliveries whose time has come; return how many.

    Chance decides which platform comes first: the backlog of one is not to keep out the others.
    """
    with resources.pool.connection() as connection:
        platforms = due.platforms(connection)
    return sum(claim_due_on(platform, resources) for platform in random.sample(platforms, len(platforms)))


def claim_due_on(platform: Platform, resources: Beat) -> int:
    """Enqueue the next attempts of a platform; return how many.

    It adds tasks only up to `claim_queue` tasks in the dispatch queue, so that a backlog does not come before new
    requests, and only as many as the platform's breaker lets through.
    """
    settings = resources.settings.delivery
    size = resources.settings.gorush.batch_size
    room = settings.claim_queue - resources.redis.llen(DISPATCH.name)
    most = resources.breaker.claimable(platform, room * size)
    if most <= 0:
        return 0
    with resources.pool.connection() as connection:
        claimed = due.claim(connection, platform, limit=most, seconds=settings.claim)
    claimed.sort(key=lambda one: (one.begun, one.failure.label if one.failure else ""))
    for position in range(0, len(claimed), size):
        _enqueue(resources, claimed[position : position + size])
    return len(claimed)


def _enqueue(resources: Beat, together: list[Due]) -> None:
    """Enqueue one attempt for each of these deliveries of a platform, as a task with the id and facts of the first."""
    first = together[0]
    most = resources.settings.delivery.max_attempts
    resources.app.send_task(
        DELIVER,
        args=[{one.delivery_key.hex(): one.begun for one in together}],
        queue=DISPATCH.name,
        task_id=first.task_id,
        retries=first.begun,
        headers={"messages": len(together), "seen": resources.now()},
        argsrepr=attempt_argument(first.begun + 1, most, len(together), first.platform, first.failure),
        kwargsrepr="",
    )


def enqueue_feedback(resources: Beat) -> int:
    """Enqueue deliveries stored as delivered whose failure gorush's webhook reported late; return how many."""
    claim = resources.settings.delivery.claim
    with resources.pool.connection() as connection:
        claimed = due.claim_feedback(connection, limit=CLAIMED_MOST, seconds=claim)
    for position in range(0, len(claimed), TASK_SIZE):
        part = claimed[position : position + TASK_SIZE]
        resources.app.send_task(
            FEEDBACK,
            args=[[delivery_key.hex() for delivery_key in part]],
            queue=DISPATCH.name,
            headers={"messages": len(part), "seen": resources.now()},
            argsrepr=f"({len(part)} deliveries that had read as delivered)",
            kwargsrepr="",
        )
    return len(claimed)


def count_dead_letters(resources: Beat) -> None:
    """Show in the metrics how many dead letters there are."""
    with resources.pool.connection() as connection:
        counts = dead_letters.counts(connection)
    metrics.DEAD_LETTERS.clear()
    for (platform, reason), count in counts.items():
        metrics.DEAD_LETTERS.labels(platform.label, reason).set(count)


def watch_marking(resources: Beat) -> frozenset[Platform]:
    """Report the platforms on which so many tokens are bad that none is marked dead; an alarm for the operator."""
    with resources.pool.connection() as connection:
        platforms = stopped(connection, resources.settings.tokens)
    for platform in Platform:
        metrics.TOKEN_MARKING_STOPPED.labels(platform.label).set(platform in platforms)
        if platform in platforms:
            log.error("token_marking_stopped", platform=platform.label)
    return platforms
