"""Publishing answers: from the outbox to the nodes; what a node took is deleted."""

from collections.abc import Sequence

import structlog

from wakupush.model.entries import SealedAnswer
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import answers
from wakupush.runtime import metrics
from wakupush.server.resources import Resources
from wakupush.waku.errors import NodeError, NodeRefused, NodeUnreachable

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds until an answer that the node did not take is published again.
RETRY_SECONDS = 1.0


def publish(resources: Resources, outbox: Sequence[tuple[int, SealedAnswer]]) -> list[SealedAnswer]:
    """Publish committed answers, and return those that a node took; what none took stays for the schedule."""
    if not outbox:
        return []
    errors = hand_over(resources, [answer for _, answer in outbox])
    unpublished = {
        answer_id for (answer_id, _), error in zip(outbox, errors, strict=True) if isinstance(error, NodeUnreachable)
    }
    done = [answer_id for answer_id, _ in outbox if answer_id not in unpublished]
    if unpublished:
        log.warning("answers_not_published", answers=len(unpublished))
    with resources.pool.connection() as connection:
        answers.remove(connection, done)
        if unpublished:
            answers.postpone(connection, unpublished, RETRY_SECONDS)
    return [answer for (_, answer), error in zip(outbox, errors, strict=True) if error is None]


def hand_over(resources: Resources, sealed: Sequence[SealedAnswer]) -> list[NodeError | None]:
    """Give answers to the nodes, and return for each what went wrong; None if a node took it."""
    # The time is that of publishing: nodes do not archive messages older than seconds, and gossip drops messages that
    # it has seen.
    timestamp = int(resources.now() * 1e9)
    errors = resources.publisher.publish(
        [
            (
                answer.pubsub_topic,
                WakuMessage(payload=answer.payload, content_topic=answer.content_topic, timestamp=timestamp),
            )
            for answer in sealed
        ]
    )
    for answer, error in zip(sealed, errors, strict=True):
        _note(answer, error)
    return errors


def _note(answer: SealedAnswer, error: NodeError | None) -> None:
    if error is None:
        metrics.ANSWERS_PUBLISHED.inc()
        log.debug("answer_published", trace_id=answer.trace_id)
    elif isinstance(error, NodeRefused):
        metrics.ANSWERS_FAILED.labels("refused").inc()
        log.error("answer_refused", trace_id=answer.trace_id, status=error.status, text=error.text)
    else:
        metrics.ANSWERS_FAILED.labels("unreachable").inc()
        log.debug("answer_not_published", trace_id=answer.trace_id, error=type(error).__name__)
