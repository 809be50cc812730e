"""Publishing answers: out of the outbox, to the node, and gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from wakupush import metrics
from wakupush.protocol.waku_message import WakuMessage
from wakupush.state import answers
from wakupush.waku.errors import NodeError, NodeRefused
from wakupush.waku.node import publish_with_retry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wakupush.server.context import Context
    from wakupush.state.answers import Answer

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Answers that one run of the schedule publishes at most.
SWEEP_LIMIT = 200
#: Seconds for which a run of the schedule holds them.
SWEEP_HOLD = 30.0


def publish(context: Context, outbox: Iterable[tuple[int, Answer]]) -> None:
    """Publish committed answers side by side; those that the node does not take stay for the schedule."""
    outbox = list(outbox)
    results = context.publishers.map(lambda each: _publish(context, each[1]), outbox)
    done = [answer_id for (answer_id, _), is_done in zip(outbox, results, strict=True) if is_done]
    if done:
        with context.pool.connection() as connection:
            answers.remove(connection, done)


def publish_overdue(context: Context) -> int:
    """Publish answers that their worker did not, and drop those for which nobody waits any more; return how many."""
    with context.pool.connection() as connection:
        expired = answers.expire(connection, context.settings.retention.answers)
        overdue = answers.claim(connection, SWEEP_LIMIT, SWEEP_HOLD)
    if expired:
        metrics.ANSWERS_EXPIRED.inc(expired)
        log.warning("answers_expired", answers=expired)
    publish(context, overdue)
    return len(overdue)


def _publish(context: Context, answer: Answer) -> bool:
    """Say whether the answer is done with: taken, or refused for ever."""
    message = WakuMessage(
        payload=answer.payload,
        content_topic=answer.content_topic,
        # Nodes do not archive messages that are older than seconds, so the time is that of publishing.
        timestamp=int(context.now() * 1e9),
    )
    try:
        publish_with_retry(context.node, answer.pubsub_topic, message)
    except NodeRefused as refused:
        metrics.ANSWERS_FAILED.labels("refused").inc()
        log.error(  # noqa: TRY400 - the traceback says nothing more
            "answer_refused", trace_id=answer.trace_id, status=refused.status, text=refused.text
        )
        return True
    except NodeError as error:
        metrics.ANSWERS_FAILED.labels("unreachable").inc()
        log.warning("answer_not_published", trace_id=answer.trace_id, error=type(error).__name__)
        return False
    metrics.ANSWERS_PUBLISHED.inc()
    return True
