"""Filling the set of watched topics, after Redis lost it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from wakupush.postgres import query_topics
from wakupush.redis import watched

if TYPE_CHECKING:
    from wakupush.server.resources import Resources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def fill_watched_topics(resources: Resources) -> bool:
    """Fill the set of watched topics from Postgres if it is not complete; say whether it was not."""
    if watched.is_complete(resources.redis):
        return False
    mark = watched.begin_filling(resources.redis)
    # Registrations that added their topics to a Redis that was wiped since are waited for, so that they are read here.
    with resources.pool.connection() as connection:
        query_topics.wait_for_additions(connection)
    count = 0
    with resources.pool.connection() as connection:
        for topics in query_topics.every_topic(connection):
            watched.add(resources.redis, topics)
            count += len(topics)
    watched.mark_complete(resources.redis, mark)
    log.info("watched_topics_filled", topics=count)
    return True
