"""Filling in the watched topics after Redis lost them."""

from __future__ import annotations

from typing import Final

import structlog

from wakupush.postgres import query_topics
from wakupush.redis import watched
from wakupush.server.resources import Resources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Topics are filled in from this many seconds before they were last seen complete. The longest transaction has 90 s;
#: the rest is for replication and clocks.
MARGIN_SECONDS: Final = 600.0


def fill_watched_topics(resources: Resources) -> bool:
    """Fill in the watched topics from Postgres if they are not complete; say whether they were not."""
    now = resources.now()
    is_complete = watched.is_complete(resources.redis)
    if is_complete:
        watched.note_seen(resources.redis, now)
    else:
        _fill(resources)
    return not is_complete


def _fill(resources: Resources) -> None:
    seen = watched.lacks_since(resources.redis)
    since = None if seen is None else seen - MARGIN_SECONDS
    mark = watched.begin_filling(resources.redis)
    # Registrations that added their topics to a Redis that was wiped since are waited for, so that they are read here.
    with resources.pool.connection() as connection:
        query_topics.wait_for_additions(connection)
    count = 0
    with resources.pool.connection() as connection:
        for topics in query_topics.every_topic(connection, since=since):
            watched.add(resources.redis, topics)
            count += len(topics)
    watched.mark_complete(resources.redis, mark)
    log.info("watched_topics_filled", topics=count, since=since)
