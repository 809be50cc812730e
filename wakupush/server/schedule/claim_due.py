"""Enqueueing the next attempts of deliveries whose time has come."""

from __future__ import annotations

import random

from wakupush.model.deliveries import Due, attempt_argument
from wakupush.model.platforms import Platform
from wakupush.model.queues import DELIVER, DISPATCH
from wakupush.postgres import due
from wakupush.server.schedule.resources import ScheduleResources


def claim_due(resources: ScheduleResources) -> int:
    """Enqueue the next attempts of deliveries whose time has come; return how many.

    Chance decides which platform comes first: the backlog of one is not to keep out the others.
    """
    with resources.pool.connection() as connection:
        platforms = due.platforms(connection)
    return sum(claim_due_on(platform, resources) for platform in random.sample(platforms, len(platforms)))


def claim_due_on(platform: Platform, resources: ScheduleResources) -> int:
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


def _enqueue(resources: ScheduleResources, together: list[Due]) -> None:
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
