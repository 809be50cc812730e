"""Publishing answers: from the outbox to the nodes; what a node took is deleted."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog
from psycopg_pool import ConnectionPool
from redis import Redis

from wakupush.model.entries import SealedAnswer
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import answers
from wakupush.redis.left_out import ExcludedNodes
from wakupush.runtime import metrics
from wakupush.runtime.connections.postgres import autocommit
from wakupush.runtime.settings import Settings
from wakupush.waku.errors import NodeError, NodeRefused, NodeUnreachable
from wakupush.waku.publisher import PUBLISH_SECONDS, Publisher

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds until an answer that the node did not take is published again.
RETRY_SECONDS: Final = 1.0
#: Seconds after which an answer does not leave once more: it may not be true any more, and its client has asked again.
LATE_SECONDS: Final = 1.0
#: Answers that a process publishes at the same time at most.
PUBLISH_CONNECTIONS: Final = 16


def open_publisher(settings: Settings, redis: Redis) -> Publisher:
    """Open the way to the nodes, which may be down meanwhile."""
    excluded = ExcludedNodes(redis, list(settings.waku.nodes))
    return Publisher(
        settings.waku.nodes,
        timeout=PUBLISH_SECONDS,
        connections=PUBLISH_CONNECTIONS,
        left_out=excluded.names,
        without_peers=excluded.without_peers,
    )


@dataclass(frozen=True, slots=True, eq=False)
class Outbox:
    """The answers that are committed, and the way to the nodes."""

    pool: ConnectionPool
    publisher: Publisher
    #: By shard: how many overdue answers beat's next run publishes at most.
    limits: dict[str, int] = field(default_factory=dict)
    #: Seconds since the epoch.
    now: Callable[[], float] = time.time

    def publish(self, outbox: Sequence[tuple[int, SealedAnswer]]) -> tuple[list[SealedAnswer], set[int]]:
        """Publish committed answers.

        Args:
            outbox: answers with their ids.

        Returns:
            Those that a node took, and the ids of those that none took: they stay in the outbox.
        """
        if not outbox:
            return [], set()
        errors = self.hand_over([answer for _, answer in outbox])
        unpublished = {
            answer_id
            for (answer_id, _), error in zip(outbox, errors, strict=True)
            if isinstance(error, NodeUnreachable)
        }
        if unpublished:
            log.warning("answers_not_published", answers=len(unpublished))
        with self.pool.connection() as connection, autocommit(connection):
            answers.remove(connection, {answer_id for answer_id, _ in outbox} - unpublished)
        return [answer for (_, answer), error in zip(outbox, errors, strict=True) if error is None], unpublished

    def postpone(self, ids: Collection[int]) -> None:
        """Leave answers to beat, which takes them in `RETRY_SECONDS`, or in a quarter of their age if that is more."""
        if ids:
            with self.pool.connection() as connection:
                answers.postpone(connection, ids, RETRY_SECONDS)

    def repeat(self, due_answers: Sequence[tuple[float, SealedAnswer]]) -> None:
        """Publish answers once more, but for those that are late.

        Args:
            due_answers: each with the time when it is due, in monotonic seconds.
        """
        now = time.monotonic()
        if in_time := [answer for due, answer in due_answers if now < due + LATE_SECONDS]:
            self.hand_over(in_time)

    def hand_over(self, sealed_answers: Sequence[SealedAnswer]) -> list[NodeError | None]:
        """Give answers to the nodes, and return for each what went wrong; None if a node took it."""
        # The time is that of publishing: nodes do not archive messages older than seconds, and gossip drops messages
        # that it has seen.
        timestamp = int(self.now() * 1e9)
        errors = self.publisher.publish(
            [
                (
                    answer.pubsub_topic,
                    WakuMessage(payload=answer.payload, content_topic=answer.content_topic, timestamp=timestamp),
                )
                for answer in sealed_answers
            ]
        )
        for answer, error in zip(sealed_answers, errors, strict=True):
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
