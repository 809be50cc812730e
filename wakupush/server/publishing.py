"""Publishing answers: out of the outbox, to the node, and gone."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

import structlog

from wakupush import metrics
from wakupush.protocol.waku_message import WakuMessage
from wakupush.state import answers
from wakupush.waku.errors import NodeError, NodeRefused
from wakupush.waku.node import publish_with_retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wakupush.server.context import Resources
    from wakupush.state.answers import Answer

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Answers that one run of the schedule publishes at most.
SWEEP_LIMIT = 200
#: Seconds for which a run of the schedule holds them.
SWEEP_HOLD = 60.0


def publish(resources: Resources, outbox: Sequence[tuple[int, Answer]]) -> None:
    """Publish committed answers side by side.

    The first that the node does not take ends it: the others stay for the schedule, and a node that hangs does not hold
    up the worker.
    """
    node_failed = Event()
    results = list(resources.publishers.map(lambda each: _publish(resources, each[1], node_failed), outbox))
    done = [answer_id for (answer_id, _), is_done in zip(outbox, results, strict=True) if is_done]
    left = [answer_id for (answer_id, _), is_done in zip(outbox, results, strict=True) if not is_done]
    if done or left:
        with resources.pool.connection() as connection:
            answers.remove(connection, done)
            answers.release(connection, left)


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


def _publish(resources: Resources, answer: Answer, node_failed: Event) -> bool:
    """Say whether the answer is done with: taken, or refused for ever."""
    if node_failed.is_set():
        return False
    message = WakuMessage(
        payload=answer.payload,
        content_topic=answer.content_topic,
        # Nodes do not archive messages that are older than seconds, so the time is that of publishing.
        timestamp=int(resources.now() * 1e9),
    )
    try:
        publish_with_retry(resources.node, answer.pubsub_topic, message, attempts=2, max_delay=1.0)
    except NodeRefused as refused:
        metrics.ANSWERS_FAILED.labels("refused").inc()
        log.error(  # noqa: TRY400 - the traceback says nothing more
            "answer_refused", trace_id=answer.trace_id, status=refused.status, text=refused.text
        )
        return True
    except NodeError as error:
        node_failed.set()
        metrics.ANSWERS_FAILED.labels("unreachable").inc()
        log.warning("answer_not_published", trace_id=answer.trace_id, error=type(error).__name__)
        return False
    metrics.ANSWERS_PUBLISHED.inc()
    return True
