"""Noting on which public topics messages come that no user's key opens."""

from collections.abc import Iterable

import structlog
from redis import RedisError

from wakupush.model.failures import Failure
from wakupush.model.limits import MINUTE, UNOPENED, Limit
from wakupush.redis import unopened
from wakupush.server.engine.engine import Engine
from wakupush.server.engine.message import Message

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def note(engine: Engine, messages: Iterable[Message]) -> None:
    """Mark public topics with too many messages that no user's key opens: then ingest takes fewer from them.

    A topic keeps its mark while unopened messages are more than half of the most that ingest takes. A topic with mostly
    queries has no mark.
    """
    most = engine.settings.ingest.topic_messages_per_minute // 2
    limits = [
        Limit(UNOPENED, most, MINUTE, message.entry.hash, key=message.entry.message.content_topic)
        for message in messages
        if message.content is Failure.NOT_FOR_US
    ]
    verdicts = engine.limiter.ask(limits)
    topics = {limit.key for limit, is_through in zip(limits, verdicts, strict=True) if not is_through}
    if not topics:
        return
    try:
        unopened.mark(engine.redis, topics)
    except RedisError as error:
        log.warning("topics_not_marked", topics=len(topics), error=type(error).__name__)
