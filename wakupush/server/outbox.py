"""Publishing answers: out of the outbox, to the node, and gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import answers
from wakupush.runtime import metrics
from wakupush.waku.errors import NodeRefused, NodeUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wakupush.model.answers import SealedAnswer
    from wakupush.server.resources import Resources
    from wakupush.waku.errors import NodeError

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds until an answer that the node did not take is published again.
RETRY_SECONDS = 1.0


def publish(resources: Resources, outbox: Sequence[tuple[int, SealedAnswer]], *, again_after: float = 0.0) -> None:
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


def _note(answer: SealedAnswer, error: NodeError | None) -> None:
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
