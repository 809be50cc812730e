"""What follows a commit: counting, posts, and answers, which report what is known of the posts by then.

The schedule finishes whatever is cut off here.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import ParamSpec, TypeVar

import structlog
from tenacity import retry, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from wakupush.model.entries import SealedAnswer, Task
from wakupush.model.queues import REGISTRATION
from wakupush.runtime import metrics
from wakupush.runtime.settings import STORE_SECONDS
from wakupush.server import outbox
from wakupush.server.counting import count_events
from wakupush.server.delivery.attempt import start, wait_for
from wakupush.server.delivery.posting import Failed
from wakupush.server.delivery.worker import Worker
from wakupush.server.errors import INFRASTRUCTURE
from wakupush.server.inbox.decide import request
from wakupush.server.inbox.outcome import Outcome
from wakupush.server.inbox.seal import seal
from wakupush.server.inbox.silence import delays
from wakupush.server.inbox.write import Correction, Written, correct

P = ParamSpec("P")
T = TypeVar("T")
#: Answers with their ids.
Answers = list[tuple[int, SealedAnswer]]

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def follow_up(resources: Worker, task: Task, outcomes: Sequence[Outcome], written: Written) -> None:
    """Post the notifications of a task, and publish its answers, while later tasks are handled.

    Args:
        task: whose messages were handled.
    """
    answers = sum(len(answer.payload) for parts in written.outbox for _, answer in parts)
    notifications = sum(len(posting.delivery.message) for posting in written.postings)
    resources.followers.do(answers + notifications, partial(_follow_up, resources, task, outcomes, written))


def _follow_up(resources: Worker, task: Task, outcomes: Sequence[Outcome], written: Written) -> None:
    metrics.BATCH_SIZE.labels(task.queue.name).observe(task.size)
    count_events(written.events)
    beginning = time.monotonic()
    within = resources.settings.worker.answer_within
    answer_delays = delays(outcomes, written.postings, resources.latencies, within=within, now=resources.now())
    posts = _without_fail(start, resources, written.postings) if written.postings else None
    corrections = (_without_fail(_corrections, resources, task, outcomes, posts) if posts else None) or {}
    waited = time.monotonic() - beginning
    resources.latencies.note({posting.delivery.platform for posting in written.postings}, waited)
    # Registrations are answered to keys that stay, and clients send them again if the answer was lost.
    is_ephemeral = task.queue is not REGISTRATION
    again_after = resources.settings.worker.repeat_answers_after if is_ephemeral else 0.0
    publish = partial(_publish, resources, again_after)
    due: Answers = []
    for position, (parts, delay) in enumerate(zip(written.outbox, answer_delays, strict=True)):
        if position not in corrections and delay <= waited:
            due += parts
        elif position not in corrections and parts:
            # The schedule publishes them if this process dies before.
            resources.later.do(delay - waited, partial(publish, parts))
    publish(due)
    if corrections:
        # Answers that are not true any more are replaced, by a commit, before they leave. If that fails, the schedule
        # publishes what is in the outbox.
        publish(_without_fail(_correct, resources, corrections, written.outbox) or [])


def _corrections(
    resources: Worker, task: Task, outcomes: Sequence[Outcome], posts: list[Future[Failed]]
) -> dict[int, Outcome]:
    """Wait for the posts as long as the answers can wait; return the corrected outcomes, by their positions."""
    oldest = min(outcome.entry.seen for outcome in outcomes if outcome.request)
    within = resources.settings.worker.answer_within
    # ingest saw it by its own clock, which may be ahead of ours.
    failed = _without_fail(wait_for, posts, min(within, oldest + within - resources.now()))
    return {
        position: correction
        for position, outcome in enumerate(outcomes)
        if failed and (correction := request.corrected(task, outcome, failed, resources.now())) is not None
    }


@retry(
    retry=retry_if_exception_type(INFRASTRUCTURE),
    wait=wait_random_exponential(multiplier=0.2, max=3),
    stop=stop_after_attempt(8) | stop_after_delay(STORE_SECONDS),
    reraise=True,
)
def _correct(resources: Worker, outcomes: Mapping[int, Outcome], outbox: Sequence[Answers]) -> Answers:
    most_bytes = resources.settings.waku.max_message_bytes
    sealed = seal(outcomes.values(), resources.identity.private_key, most_bytes=most_bytes)
    corrections = [
        Correction(outcome, parts, [answer_id for answer_id, _ in outbox[position]])
        for (position, outcome), parts in zip(outcomes.items(), sealed, strict=True)
    ]
    with resources.pool.connection() as connection:
        new_answers, events = correct(connection, corrections)
    count_events(events)
    return new_answers


def _publish(resources: Worker, again_after: float, answers: Answers) -> None:
    published = _without_fail(outbox.publish, resources, answers)
    if again_after and published:  # a light client may have subscribed by then
        resources.later.do(again_after, partial(outbox.hand_over, resources, published))


def _without_fail(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Do work whose necessary effects are committed already: a failure is only logged."""
    try:
        return work(*args, **kwargs)
    except Exception:
        log.exception("unfinished")
        return None
