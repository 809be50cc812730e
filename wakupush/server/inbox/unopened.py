"""Noting on which query topics messages come that no user's key opens."""

from collections.abc import Iterable

import structlog
from redis import RedisError

from wakupush.model.failures import Failure
from wakupush.model.limits import MINUTE, UNOPENED, Limit
from wakupush.redis import unopened
from wakupush.server.delivery.worker import Worker
from wakupush.server.inbox.content import Message

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def note(resources: Worker, messages: Iterable[Message]) -> None:
    """Mark query topics with too many messages that no user's key opens: then ingest takes fewer from them.

    A topic keeps its mark while unopened messages are more than half of the most that ingest takes. A topic with mostly
    queries has no mark.
    """
    most = resources.settings.ingest.topic_messages_per_minute // 2
    limits = [
        Limit(UNOPENED, most, MINUTE, message.entry.hash, key=message.entry.message.content_topic)
        for message in messages
        if message.content is Failure.NOT_FOR_US
    ]
    if not limits:
        return
    verdicts = resources.limiter.ask(limits)
    topics = {limit.key for limit in limits if not verdicts[limit]}
    if not topics:
        return
    try:
        unopened.mark(resources.redis, topics)
    except RedisError as error:
        log.warning("topics_not_marked", topics=len(topics), error=type(error).__name__)
