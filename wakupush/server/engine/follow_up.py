"""What follows a commit: counting, posts, and answers, which report what is known of the posts by then.

Beat finishes whatever is cut off here.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import structlog

from wakupush.model.entries import SealedAnswer
from wakupush.model.failures import Failure
from wakupush.postgres import requests
from wakupush.runtime import metrics
from wakupush.runtime.connections.postgres import autocommit
from wakupush.server.delivery.attempt import start, wait_for
from wakupush.server.delivery.events import count_events
from wakupush.server.delivery.posting import Failed, Posting
from wakupush.server.engine.answer_times import SLOT_SECONDS, answer_age, answer_slot
from wakupush.server.engine.engine import Engine
from wakupush.server.engine.kind import Context, Kind
from wakupush.server.engine.outbox import RETRY_SECONDS
from wakupush.server.engine.outcome import Outcome
from wakupush.server.engine.seal import seal
from wakupush.server.engine.store import Answers, Committed, Correction, correct
from wakupush.server.errors import once_postgres_is_back

P = ParamSpec("P")
T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds for which answers wait for a connection to Postgres, to look again at what they report. The look may take as
#: long.
LOOK_SECONDS: Final = 1.0
#: Seconds after the commit for which the worker looks at answers that no node takes, and publishes them again. Its last
#: try has ended before beat, which cannot look, takes them.
TRY_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    """The answer to a message, in the outbox."""

    outcome: Outcome
    parts: Answers


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """A task whose effects are committed, and its answers, which leave together."""

    engine: Engine
    kind: Kind[Any, Any]
    context: Context
    answers: Sequence[_Answer]
    #: In monotonic seconds.
    committed: float
    #: When they leave, in monotonic seconds; at once, without another look, if it is 0.
    leaves: float
    #: Its own posts, once they have begun.
    posts: list[Future[Failed]] = field(default_factory=list)

    def corrected(self, answer: _Answer, failed: Failed) -> Outcome | None:
        """Return the outcome that is true now, None if it still is the same."""
        if not failed or self.kind.correct is None:
            return None
        return self.kind.correct(answer.outcome, failed, replace(self.context, now=self.engine.now()))


def follow_up(
    engine: Engine, kind: Kind[Any, Any], context: Context, outcomes: Sequence[Outcome], committed: Committed
) -> None:
    """Post the notifications of a task, and publish its answers, while later tasks are handled.

    Answers that report on posts leave in their slot, whether something is posted or not.
    """
    answers = [_Answer(*pair) for pair in zip(outcomes, committed.answers, strict=True) if pair[1]]
    leaves = _leaves(engine, context, answers) if kind.correct is not None and answers else 0.0
    batch = _Batch(engine, kind, context, answers, time.monotonic(), leaves)
    answer_bytes = sum(len(answer.payload) for parts in committed.answers for _, answer in parts)
    size = sum(len(posting.delivery.message) for posting in committed.postings)
    if leaves:
        # In the slot before it is prepared. Beat publishes it if this process dies first.
        engine.answers.do(leaves - SLOT_SECONDS, answer_bytes, _publish, batch)
    else:
        size += answer_bytes
    engine.followers.do(size, partial(_follow_up, batch, committed))


def _leaves(engine: Engine, context: Context, answers: Sequence[_Answer]) -> float:
    """Return when the answers of a task leave, in monotonic seconds."""
    within = engine.settings.worker.answer_within
    now = time.monotonic()
    ahead = now - engine.now()
    slot = answer_slot(
        # ingest saw it by its own clock, which may be ahead of ours.
        seen=min(answer.outcome.entry.seen for answer in answers) + ahead,
        # The calendar may have been set back during the transaction.
        start=min(context.task.taken + ahead, context.began),
        now=now,
        age=answer_age(engine.post_times.percentile, within),
        within=within,
    )
    return slot * SLOT_SECONDS


def _follow_up(batch: _Batch, committed: Committed) -> None:
    metrics.BATCH_SIZE.labels(batch.kind.queue.name).observe(batch.context.task.size)
    count_events(committed.events)
    if committed.postings:
        _without_fail(_post, batch, committed.postings)
    if batch.answers and not batch.leaves:
        _publish([batch])


def _post(batch: _Batch, postings: Sequence[Posting]) -> None:
    """Start the posts, and wait for them until their answers leave: a slow gorush slows down this process."""
    batch.posts.extend(start(batch.engine, list(postings), began=batch.context.began))
    wait(batch.posts, max(0.0, batch.leaves - time.monotonic()))


def _publish(batches: Sequence[_Batch], *, must_look: bool = False) -> None:
    """Publish answers when they leave. Those that are not true any more are replaced, by a commit, and leave last.

    If that fails, beat publishes what is in the outbox.

    Args:
        batches: at least one.
        must_look: whether nothing leaves if Postgres does not say whether it still is true.
    """
    engine = batches[0].engine
    failed = wait_for((post for batch in batches for post in batch.posts), 0.0)
    if batches[0].leaves:
        # Other processes may post these, too: beat claims what found no slot, or failed for the time being. They are
        # looked up also if there are none: else a slow Postgres would show which requests were filtered.
        reported_keys = {key for batch in batches for answer in batch.answers for key in answer.outcome.delivery_keys}
        failures = _without_fail(_failed, engine, reported_keys)
        if failures is None and must_look:
            _try_again(engine, [(batch, answer) for batch in batches for answer in batch.answers])
            return
        failed |= failures or {}
    true: list[tuple[_Batch, _Answer]] = []
    corrected: dict[_Batch, list[tuple[_Answer, Outcome]]] = {}
    for batch in batches:
        for answer in batch.answers:
            if (outcome := batch.corrected(answer, failed)) is None:
                true.append((batch, answer))
            else:
                corrected.setdefault(batch, []).append((answer, outcome))
    engine.answers.wait_until(max(batch.leaves for batch in batches))
    unpublished = _hand_over(engine, true)
    for batch, changes in corrected.items():
        unpublished += _hand_over(engine, [(batch, answer) for answer in _without_fail(_correct, batch, changes) or []])
    _try_again(engine, unpublished)


def _failed(engine: Engine, delivery_keys: Collection[bytes]) -> Failed:
    """Return which deliveries failed for good. What a receiver does not want, senders never learn of."""
    with engine.pool.connection(timeout=LOOK_SECONDS) as connection, autocommit(connection):
        failed = requests.failed_within(connection, LOOK_SECONDS, delivery_keys)
    return {key: failure for key, failure in failed.items() if failure is not Failure.UNWANTED}


@once_postgres_is_back
def _correct(batch: _Batch, changes: Sequence[tuple[_Answer, Outcome]]) -> list[_Answer]:
    engine = batch.engine
    most_bytes = engine.settings.waku.max_message_bytes
    answers = seal([outcome for _, outcome in changes], engine.identity, most_bytes=most_bytes)
    corrections = [
        Correction(outcome, parts, [answer_id for answer_id, _ in old.parts])
        for (old, outcome), parts in zip(changes, answers, strict=True)
    ]
    with engine.pool.connection() as connection:
        corrected, events = correct(connection, batch.kind, batch.context, corrections)
    count_events(events)
    return [_Answer(*pair) for pair in corrected]


def _try_again(engine: Engine, answers: Sequence[tuple[_Batch, _Answer]]) -> None:
    """Have answers published again that no node took, for `TRY_SECONDS` by this process if they can become untrue."""
    now = time.monotonic()
    by_batch: dict[_Batch, list[_Answer]] = {}
    for batch, answer in answers:
        by_batch.setdefault(batch, []).append(answer)
    for batch, unpublished in by_batch.items():
        parts = [part for answer in unpublished for part in answer.parts]
        leaves = now + max(RETRY_SECONDS, (now - batch.committed) / 4)
        if not batch.leaves:
            _without_fail(engine.outbox.postpone, [answer_id for answer_id, _ in parts])
        elif leaves < batch.committed + TRY_SECONDS:
            size = sum(len(part.payload) for _, part in parts)
            again = replace(batch, answers=unpublished, leaves=leaves)
            engine.answers.do(leaves - SLOT_SECONDS, size, _PUBLISH_AGAIN, again)


#: What was true when it left first may not be so by now. One object, so that all that is due is published together.
_PUBLISH_AGAIN: Final = partial(_publish, must_look=True)


def _hand_over(engine: Engine, answers: Sequence[tuple[_Batch, _Answer]]) -> list[tuple[_Batch, _Answer]]:
    """Publish answers, and have those once more that their kind repeats, if they are of one part.

    Returns:
        Those of which no node took some part.
    """
    result = _without_fail(engine.outbox.publish, [part for _, answer in answers for part in answer.parts])
    if result is None:
        return []
    published, ids = result
    unpublished = [pair for pair in answers if any(answer_id in ids for answer_id, _ in pair[1].parts)]
    if not published:
        return unpublished
    _time(engine, answers, set(published))
    if not (again_after := engine.settings.worker.repeat_answers_after):
        return unpublished
    once = {
        part
        for batch, answer in answers
        if len(answer.parts) > len(answer.outcome.replies) or not batch.kind.repeats_answers
        for _, part in answer.parts
    }
    due = time.monotonic() + again_after  # a light client may have subscribed by then
    for answer in published:
        if answer not in once:
            engine.repeats.do(due, len(answer.payload), engine.outbox.repeat, (due, answer))
    return unpublished


def _time(engine: Engine, answers: Sequence[tuple[_Batch, _Answer]], published: AbstractSet[SealedAnswer]) -> None:
    """Note how long each answer took that a node has wholly taken; beat notes the others."""
    now = engine.now()
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for batch, answer in answers:
        if all(part in published for _, part in answer.parts):
            seconds[batch.kind.queue.name].append(max(0.0, now - answer.outcome.entry.seen))
    for queue, observations in seconds.items():
        metrics.observe(metrics.ANSWER_SECONDS, [queue], observations)


def _without_fail(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Do work whose necessary effects are committed already: a failure is only logged."""
    try:
        return work(*args, **kwargs)
    except Exception:
        log.exception("unfinished")
        return None
