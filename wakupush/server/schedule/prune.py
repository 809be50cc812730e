"""Partitions ahead of time, and deleting what is past its retention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog

from wakupush.model.retention import RetentionRule
from wakupush.postgres import maintenance, packed_requests, query_topics, registrations, token_trials
from wakupush.redis import watched
from wakupush.runtime.connections.postgres import autocommit

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg import Connection

    from wakupush.runtime.settings import RetentionSettings
    from wakupush.server.resources import Resources

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Chunks that one run deletes by a rule at most.
MOST_CHUNKS: Final = 1000


def prune(resources: Resources) -> None:
    """Make partitions ahead of time, delete what is past its retention, and stop watching unused topics."""
    keep = resources.settings.retention
    today = datetime.fromtimestamp(resources.now(), UTC).date()
    with resources.pool.connection() as connection, autocommit(connection):
        maintenance.create_partitions(connection, today)
    deleted = {rule.name: _in_chunks(resources, partial(maintenance.delete, rule=rule)) for rule in rules(keep)}
    if keep.registrations is not None:
        unregister = partial(registrations.unregister_dead, seconds=keep.registrations, most=maintenance.CHUNK_ROWS)
        deleted["registrations"] = _in_chunks(resources, unregister)
    for table, seconds in ((maintenance.LEDGER, keep.ledger), (maintenance.EVENTS, keep.events)):
        with resources.pool.connection() as connection:
            deleted[table] = maintenance.drop_partitions(connection, table, seconds, today)
    with resources.pool.connection() as connection:
        oldest = (today - timedelta(seconds=keep.packed_requests)).replace(day=1)
        deleted["packed_months"] = packed_requests.forget(connection, oldest)
    with resources.pool.connection() as connection:
        unused = query_topics.remove_unused(connection)
        watched.remove(resources.redis, unused)
    log.info("pruned", topics=len(unused), **deleted)


def rules(keep: RetentionSettings) -> tuple[RetentionRule, ...]:
    """Return what is deleted row by row."""
    return (
        RetentionRule("ledger_default", keep.ledger),
        RetentionRule("delivery_events_default", keep.events),
        RetentionRule("message_attempts", keep.ledger),
        RetentionRule("deliveries", keep.deliveries),
        RetentionRule("dead_letters", keep.dead_letters),
        RetentionRule("quarantine", keep.dead_letters),
        RetentionRule("token_trials", token_trials.WINDOW_SECONDS),
        # A message that reconcile brings as late as this is still remembered by the ledger.
        RetentionRule("shadow", keep.ledger),
    )


def _in_chunks(resources: Resources, delete: Callable[[Connection], int]) -> int:
    deleted = 0
    for _ in range(MOST_CHUNKS):
        with resources.pool.connection() as connection:
            chunk = delete(connection)
        deleted += chunk
        if chunk < maintenance.CHUNK_ROWS:
            break
    return deleted
