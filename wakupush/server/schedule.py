"""What the schedule does besides deliveries and answers: keeping Redis' topics whole, and rows from piling up."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import structlog

from wakupush import watched
from wakupush.state import maintenance, query_topics

if TYPE_CHECKING:
    from wakupush.server.context import Context

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def fill_watched_topics(context: Context) -> bool:
    """Fill the set of watched topics from Postgres if it is not complete; say whether it was not."""
    if watched.is_complete(context.redis):
        return False
    run_id = watched.run_id(context.redis)
    count = 0
    with context.pool.connection() as connection:
        for topics in query_topics.every_topic(connection):
            watched.add(context.redis, topics)
            count += len(topics)
    watched.mark_complete(context.redis, run_id)
    log.info("watched_topics_filled", topics=count)
    return True


def prune(context: Context) -> None:
    """Make partitions ahead of time, delete what is past its retention, and stop watching unused topics."""
    keep = context.settings.retention
    today = datetime.fromtimestamp(context.now(), UTC).date()
    with context.pool.connection() as connection:
        maintenance.create_partitions(connection, today)
    deleted = {}
    for rule in maintenance.rules(keep):
        with context.pool.connection() as connection:
            deleted[rule.name] = maintenance.delete(connection, rule)
    for table, seconds in ((maintenance.LEDGER, keep.ledger), (maintenance.EVENTS, keep.events)):
        with context.pool.connection() as connection:
            deleted[table.name] = maintenance.drop_partitions(connection, table, seconds, today)
    with context.pool.connection() as connection:
        unused = query_topics.remove_unused(connection)
        watched.remove(context.redis, unused)
    log.info("pruned", topics=len(unused), **deleted)
