"""What follows a commit: counting, posts, and answers, which report what is known of the posts by then.

Beat finishes whatever is cut off here.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

import structlog
from tenacity import retry, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from wakupush.runtime import metrics
from wakupush.runtime.settings import STORE_SECONDS
from wakupush.server.delivery.attempt import start, wait_for
from wakupush.server.delivery.events import count_events
from wakupush.server.delivery.posting import Failed
from wakupush.server.engine.delays import delays
from wakupush.server.engine.engine import Engine
from wakupush.server.engine.kind import Context, Kind
from wakupush.server.engine.outcome import Outcome
from wakupush.server.engine.seal import seal
from wakupush.server.engine.store import Answers, Committed, Correction, correct
from wakupush.server.errors import INFRASTRUCTURE

P = ParamSpec("P")
T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def follow_up(
    engine: Engine, kind: Kind[Any, Any], context: Context, outcomes: Sequence[Outcome], committed: Committed
) -> None:
    """Post the notifications of a task, and publish its answers, while later tasks are handled."""
    answers = sum(len(answer.payload) for parts in committed.answers for _, answer in parts)
    notifications = sum(len(posting.delivery.message) for posting in committed.postings)
    engine.followers.do(answers + notifications, partial(_follow_up, engine, kind, context, outcomes, committed))


def _follow_up(
    engine: Engine, kind: Kind[Any, Any], context: Context, outcomes: Sequence[Outcome], committed: Committed
) -> None:
    metrics.BATCH_SIZE.labels(kind.queue.name).observe(context.task.size)
    count_events(committed.events)
    beginning = time.monotonic()
    within = engine.settings.worker.answer_within
    answer_delays = delays(outcomes, committed.postings, engine.latencies, within=within, now=engine.now())
    posts = _without_fail(start, engine, list(committed.postings)) if committed.postings else None
    corrections = (_without_fail(_corrections, engine, kind, context, outcomes, posts) if posts else None) or {}
    waited = time.monotonic() - beginning
    engine.latencies.note({posting.delivery.app_platform for posting in committed.postings}, waited)
    publish = partial(_publish, engine, engine.settings.worker.repeat_answers_after if kind.repeats_answers else 0.0)
    due: Answers = []
    for position, (parts, delay) in enumerate(zip(committed.answers, answer_delays, strict=True)):
        if position not in corrections and delay <= waited:
            due += parts
        elif position not in corrections and parts:
            # Beat publishes them if this process dies before.
            engine.later.do(delay - waited, partial(publish, parts))
    publish(due)
    if corrections:
        # Answers that are not true any more are replaced, by a commit, before they leave. If that fails, beat publishes
        # what is in the outbox.
        outdated = {position: committed.answers[position] for position in corrections}
        publish(_without_fail(_correct, engine, kind, context, corrections, outdated) or [])


def _corrections(
    engine: Engine,
    kind: Kind[Any, Any],
    context: Context,
    outcomes: Sequence[Outcome],
    posts: list[Future[Failed]],
) -> dict[int, Outcome]:
    """Wait for the posts as long as the answers can wait; return the corrected outcomes, by their positions."""
    oldest = min(outcome.entry.seen for outcome in outcomes if outcome.reply)
    within = engine.settings.worker.answer_within
    # ingest saw it by its own clock, which may be ahead of ours.
    failed = _without_fail(wait_for, posts, min(within, oldest + within - engine.now()))
    if not failed or kind.correct is None:
        return {}
    context = replace(context, now=engine.now())
    return {
        position: correction
        for position, outcome in enumerate(outcomes)
        if (correction := kind.correct(outcome, failed, context)) is not None
    }


@retry(
    retry=retry_if_exception_type(INFRASTRUCTURE),
    wait=wait_random_exponential(multiplier=0.2, max=3),
    stop=stop_after_attempt(8) | stop_after_delay(STORE_SECONDS),
    reraise=True,
)
def _correct(
    engine: Engine,
    kind: Kind[Any, Any],
    context: Context,
    outcomes: dict[int, Outcome],
    outdated: dict[int, Answers],
) -> Answers:
    most_bytes = engine.settings.waku.max_message_bytes
    answers = seal(outcomes.values(), engine.identity.private_key, most_bytes=most_bytes)
    corrections = [
        Correction(outcome, parts, [answer_id for answer_id, _ in outdated[position]])
        for (position, outcome), parts in zip(outcomes.items(), answers, strict=True)
    ]
    with engine.pool.connection() as connection:
        new_answers, events = correct(connection, kind, context, corrections)
    count_events(events)
    return new_answers


def _publish(engine: Engine, again_after: float, answers: Answers) -> None:
    published = _without_fail(engine.outbox.publish, answers)
    if again_after and published:  # a light client may have subscribed by then
        engine.later.do(again_after, partial(engine.outbox.hand_over, published))


def _without_fail(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Do work whose necessary effects are committed already: a failure is only logged."""
    try:
        return work(*args, **kwargs)
    except Exception:
        log.exception("unfinished")
        return None
