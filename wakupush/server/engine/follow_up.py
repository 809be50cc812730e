"""What follows a commit: counting, posts, and answers, which report what is known of the posts by then.

Beat finishes whatever is cut off here.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ParamSpec, TypeVar

import structlog
from tenacity import retry, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from wakupush.model.failures import Failure
from wakupush.postgres import requests
from wakupush.runtime import metrics
from wakupush.runtime.settings import STORE_SECONDS
from wakupush.server.delivery.attempt import start, wait_for
from wakupush.server.delivery.events import count_events
from wakupush.server.delivery.posting import Failed, Posting
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


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """A task whose effects are committed."""

    engine: Engine
    kind: Kind[Any, Any]
    context: Context


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """The answer to a message, in the outbox."""

    batch: _Batch
    outcome: Outcome
    parts: Answers
    #: The deliveries that it reports as pushed, and that others post.
    foreign_keys: frozenset[bytes]

    def corrected(self, failed: Failed) -> Outcome | None:
        """Return the outcome that is true now, None if it still is the same."""
        if not failed or self.batch.kind.correct is None:
            return None
        return self.batch.kind.correct(self.outcome, failed, replace(self.batch.context, now=self.batch.engine.now()))


def follow_up(
    engine: Engine, kind: Kind[Any, Any], context: Context, outcomes: Sequence[Outcome], committed: Committed
) -> None:
    """Post the notifications of a task, and publish its answers, while later tasks are handled."""
    answers = sum(_size(parts) for parts in committed.answers)
    notifications = sum(len(posting.delivery.message) for posting in committed.postings)
    batch = _Batch(engine, kind, context)
    engine.followers.do(answers + notifications, partial(_follow_up, batch, outcomes, committed))


def _follow_up(batch: _Batch, outcomes: Sequence[Outcome], committed: Committed) -> None:
    engine, postings = batch.engine, committed.postings
    metrics.BATCH_SIZE.labels(batch.kind.queue.name).observe(batch.context.task.size)
    count_events(committed.events)
    beginning = time.monotonic()
    within = engine.settings.worker.answer_within
    answer_delays = delays(outcomes, postings, engine.latencies, within=within, now=engine.now())
    failed = (_without_fail(_post, batch, outcomes, postings) if postings else None) or {}
    waited = time.monotonic() - beginning
    engine.latencies.note({posting.delivery.app_platform for posting in postings}, waited)
    own_keys = {posting.delivery.delivery_key for posting in postings}
    due = []
    for outcome, parts, delay in zip(outcomes, committed.answers, answer_delays, strict=True):
        reported_keys = {push.delivery_key for push in outcome.pushes if push.delivery_key is not None}
        answer = _Answer(batch, outcome, parts, frozenset(reported_keys - own_keys))
        if parts and delay > waited and answer.corrected(failed) is None:
            # Beat publishes it if this process dies before.
            engine.later.do(delay - waited, _size(parts), _publish, answer)
        elif parts:
            due.append(answer)
    if due:
        _publish(due, failed)


def _post(batch: _Batch, outcomes: Sequence[Outcome], postings: Sequence[Posting]) -> Failed:
    """Start the posts, wait for them as long as the answers can wait, and return what failed for good by then."""
    engine = batch.engine
    posts = start(engine, list(postings), began=batch.context.began)
    oldest = min(outcome.entry.seen for outcome in outcomes if outcome.reply)
    within = engine.settings.worker.answer_within
    # ingest saw it by its own clock, which may be ahead of ours.
    return wait_for(posts, min(within, oldest + within - engine.now()))


def _publish(answers: Sequence[_Answer], failed: Failed | None = None) -> None:
    """Publish answers. Those that are not true any more are replaced, by a commit, before they leave.

    If that fails, beat publishes what is in the outbox.

    Args:
        answers: at least one, all of one kind.
        failed: deliveries of their tasks that failed for good since.
    """
    engine = answers[0].batch.engine
    foreign_keys = frozenset[bytes]().union(*(answer.foreign_keys for answer in answers))
    if foreign_keys:
        failed = (failed or {}) | (_without_fail(_failed, engine, foreign_keys) or {})
    true: Answers = []
    corrected: defaultdict[_Batch, list[tuple[_Answer, Outcome]]] = defaultdict(list)
    for answer in answers:
        if (outcome := answer.corrected(failed or {})) is None:
            true += answer.parts
        else:
            corrected[answer.batch].append((answer, outcome))
    again_after = engine.settings.worker.repeat_answers_after if answers[0].batch.kind.repeats_answers else 0.0
    _hand_over(engine, true, again_after)
    for batch, changes in corrected.items():
        _hand_over(engine, _without_fail(_correct, batch, changes) or [], again_after)


def _failed(engine: Engine, delivery_keys: Collection[bytes]) -> Failed:
    """Return which deliveries of other tasks failed for good. What a receiver does not want, senders never learn of."""
    with engine.pool.connection() as connection:
        failed = requests.failed(connection, delivery_keys)
    return {key: failure for key, failure in failed.items() if failure is not Failure.UNWANTED}


@retry(
    retry=retry_if_exception_type(INFRASTRUCTURE),
    wait=wait_random_exponential(multiplier=0.2, max=3),
    stop=stop_after_attempt(8) | stop_after_delay(STORE_SECONDS),
    reraise=True,
)
def _correct(batch: _Batch, changes: Sequence[tuple[_Answer, Outcome]]) -> Answers:
    engine = batch.engine
    most_bytes = engine.settings.waku.max_message_bytes
    answers = seal([outcome for _, outcome in changes], engine.identity.private_key, most_bytes=most_bytes)
    corrections = [
        Correction(outcome, parts, [answer_id for answer_id, _ in old.parts])
        for (old, outcome), parts in zip(changes, answers, strict=True)
    ]
    with engine.pool.connection() as connection:
        new_answers, events = correct(connection, batch.kind, batch.context, corrections)
    count_events(events)
    return new_answers


def _hand_over(engine: Engine, answers: Answers, again_after: float) -> None:
    published = _without_fail(engine.outbox.publish, answers)
    if again_after:  # a light client may have subscribed by then
        for answer in published or ():
            engine.later.do(again_after, len(answer.payload), engine.outbox.hand_over, answer)


def _size(parts: Answers) -> int:
    return sum(len(answer.payload) for _, answer in parts)


def _without_fail(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Do work whose necessary effects are committed already: a failure is only logged."""
    try:
        return work(*args, **kwargs)
    except Exception:
        log.exception("unfinished")
        return None
