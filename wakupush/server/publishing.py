"""Publishing answers: out of the outbox, to the node, and gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from wakupush import metrics
from wakupush.protocol.waku_message import WakuMessage
from wakupush.state import answers
from wakupush.waku.errors import NodeRefused, NodeUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wakupush.server.context import Resources
    from wakupush.state.answers import Answer
    from wakupush.waku.errors import NodeError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Answers that one run of the schedule publishes at most.
SWEEP_LIMIT = 200
#: Seconds until an answer that the node did not take is published again.
RETRY_SECONDS = 1.0
#: Seconds for which a run of the schedule holds them.
SWEEP_HOLD = 60.0


def publish(resources: Resources, outbox: Sequence[tuple[int, Answer]], *, again_after: float = 0.0) -> None:
    """Publish committed answers; those that the node does not take stay for the schedule.

    Args:
        resources: of this process.
        outbox: the answers, with their ids.
        again_after: seconds after which the schedule publishes them once more; 0 is never. A light client may not be
            subscribed yet when a fast answer leaves.
    """
    if not outbox:
        return
    # Nodes do not archive messages that are older than seconds, so the time is that of publishing.
    timestamp = int(resources.now() * 1e9)
    messages = [
        (
            answer.pubsub_topic,
            WakuMessage(payload=answer.payload, content_topic=answer.content_topic, timestamp=timestamp),
        )
        for _, answer in outbox
    ]
    errors = resources.publisher.publish(messages)
    done: list[int] = []
    left: list[int] = []
    for (answer_id, answer), error in zip(outbox, errors, strict=True):
        _note(answer, error)
        (left if isinstance(error, NodeUnreachable) else done).append(answer_id)
    if left:
        log.warning("answers_not_published", answers=len(left))
    with resources.pool.connection() as connection:
        if again_after:
            answers.postpone(connection, done, again_after)
        else:
            answers.remove(connection, done)
        if left:
            answers.postpone(connection, left, RETRY_SECONDS)


def publish_overdue(resources: Resources) -> int:
    """Publish answers that their worker did not, and drop those for which nobody waits any more; return how many."""
    with resources.pool.connection() as connection:
        expired = answers.expire(connection, resources.settings.retention.answers)
        overdue = answers.claim(connection, SWEEP_LIMIT, SWEEP_HOLD)
    if expired:
        metrics.ANSWERS_EXPIRED.inc(expired)
        log.warning("answers_expired", answers=expired)
    publish(resources, overdue)
    return len(overdue)


def _note(answer: Answer, error: NodeError | None) -> None:
    """Count and log what became of an answer."""
    if error is None:
        metrics.ANSWERS_PUBLISHED.inc()
        log.debug("answer_published", trace_id=answer.trace_id)
    elif isinstance(error, NodeRefused):
        metrics.ANSWERS_FAILED.labels("refused").inc()
        log.error("answer_refused", trace_id=answer.trace_id, status=error.status, text=error.text)
    else:
        metrics.ANSWERS_FAILED.labels("unreachable").inc()
        log.debug("answer_not_published", trace_id=answer.trace_id, error=type(error).__name__)
