"""What follows a commit: counting, posts, and answers that leave with what is known of the posts by then.

Whatever is cut off here, the schedule makes up for.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import structlog

from wakupush.model.queues import REGISTRATION
from wakupush.runtime import metrics
from wakupush.server import outbox
from wakupush.server.counting import count_events
from wakupush.server.delivery.attempt import start
from wakupush.server.delivery.lanes import wait_for
from wakupush.server.inbox.decide import request
from wakupush.server.inbox.seal import seal
from wakupush.server.inbox.silence import delays
from wakupush.server.inbox.write import correct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from wakupush.model.answers import SealedAnswer
    from wakupush.model.entries import Task
    from wakupush.server.delivery.posting import Failed
    from wakupush.server.inbox.outcome import Outcome
    from wakupush.server.inbox.resources import InboxResources
    from wakupush.server.inbox.write import Written

P = ParamSpec("P")
T = TypeVar("T")
#: Answers of each outcome, with their ids.
Outbox = list[list[tuple[int, "SealedAnswer"]]]

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def follow_up(resources: InboxResources, task: Task, outcomes: Sequence[Outcome], written: Written) -> None:
    """Post what a task brought, and publish its answers.

    Args:
        resources: of this process.
        task: whose messages were handled.
        outcomes: what was decided on them.
        written: what was committed.
    """
    metrics.BATCH_SIZE.labels(task.queue.name).observe(task.size)
    count_events(written.events)
    answers = written.outbox
    begun = time.monotonic()
    within = resources.settings.worker.answer_within
    held = delays(outcomes, written.postings, resources.latencies, within=within, now=resources.now())
    if written.postings:
        posts = _without_fail(start, resources, written.postings)
        if posts:
            answers = _without_fail(_correct, resources, task, outcomes, answers, posts) or answers
    waited = time.monotonic() - begun
    resources.latencies.note({posting.delivery.platform for posting in written.postings}, waited)
    # Registrations are answered to keys that stay, and are sent again where the answer was lost.
    is_ephemeral = task.queue is not REGISTRATION
    publish = partial(
        outbox.publish,
        resources,
        again_after=resources.settings.worker.repeat_answers_after if is_ephemeral else 0.0,
    )
    pairs = list(zip(held, answers, strict=True))
    _without_fail(publish, [part for seconds, parts in pairs if seconds <= waited for part in parts])
    for seconds, parts in pairs:
        if seconds > waited and parts:
            # The schedule publishes them if this process dies before.
            resources.later.do(seconds - waited, partial(publish, parts))


def _correct(
    resources: InboxResources,
    task: Task,
    outcomes: Sequence[Outcome],
    answers: Outbox,
    posts: list[Future[Failed]],
) -> Outbox:
    """Wait for the posts as long as the answers can wait; return the answers that are true then, as they are stored."""
    oldest = min(outcome.entry.seen for outcome in outcomes if outcome.request)
    within = resources.settings.worker.answer_within
    # ingest saw it by its own clock, which may be ahead of ours.
    failed = wait_for(posts, min(within, oldest + within - resources.now()))
    corrections = {
        position: correction
        for position, outcome in enumerate(outcomes)
        if failed and (correction := request.corrected(task, outcome, failed, resources.now())) is not None
    }
    if not corrections:
        return answers
    most_bytes = resources.settings.waku.max_message_bytes
    sealed = seal(corrections.values(), resources.identity.private_key, most_bytes=most_bytes)
    replaced = [answer_id for position in corrections for answer_id, _ in answers[position]]
    with resources.pool.connection() as connection:
        written = correct(connection, list(corrections.values()), sealed, replaced)
    count_events(written.events)
    now_true = dict(zip(corrections, written.outbox, strict=True))
    return [now_true.get(position, parts) for position, parts in enumerate(answers)]


def _without_fail(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Do work whose effects are committed already as far as they must be: a failure is logged, and that is all."""
    try:
        return work(*args, **kwargs)
    except Exception:
        log.exception("unfinished")
        return None
