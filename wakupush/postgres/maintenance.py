"""Partitions by day, and retention."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from wakupush.postgres.named_sql import load

if TYPE_CHECKING:
    from psycopg import Connection

    from wakupush.model.retention import RetentionRule

_SQL = load("maintenance")
#: Days for which partitions are made ahead.
DAYS_AHEAD: Final = 3
#: Rows that are deleted in one transaction at most.
CHUNK_ROWS: Final = 10_000
#: Seconds for which making or dropping partitions waits for each lock.
LOCK_SECONDS: Final = 1
#: Tables with a partition for each day (UTC) and one for everything else.
LEDGER: Final = "ledger"
EVENTS: Final = "delivery_events"
PARTITIONED: Final = (LEDGER, EVENTS)


def create_partitions(connection: Connection, today: date) -> None:
    """Make the partitions from yesterday to `DAYS_AHEAD` days from now, however long moving late rows takes.

    Raises:
        LockNotAvailable: somebody else uses the tables for longer than `LOCK_SECONDS`.
    """
    connection.execute("SET LOCAL statement_timeout = 0")
    _wait_shortly_for_locks(connection)
    for table in PARTITIONED:
        for offset in range(-1, DAYS_AHEAD + 1):
            connection.execute(_SQL["create_partition"], {"table": table, "day": today + timedelta(days=offset)})


def drop_partitions(connection: Connection, table: str, keep: float, today: date) -> int:
    """Drop the partitions of days that are over for `keep` seconds, once all their rows came in before that.

    Raises:
        LockNotAvailable: somebody else uses the tables for longer than `LOCK_SECONDS`.
    """
    _wait_shortly_for_locks(connection)
    dropped = 0
    for (name,) in connection.execute(_SQL["partitions"], {"table": table}).fetchall():
        suffix = name.removeprefix(f"{table}_")
        if not suffix.isdigit():
            continue
        day = datetime.strptime(suffix, "%Y%m%d").replace(tzinfo=UTC).date()
        if (today - day).days * 86_400 <= keep + 86_400:
            continue
        row = connection.execute(_SQL["drop_partition"], {"table": table, "day": day, "keep": keep}).fetchone()
        dropped += row is not None and row[0]
    return dropped


def delete(connection: Connection, rule: RetentionRule) -> int:
    """Delete rows that a rule no longer keeps, at most `CHUNK_ROWS`; return how many."""
    return connection.execute(_SQL[rule.name], {"keep": rule.keep, "most": CHUNK_ROWS}).rowcount


def _wait_shortly_for_locks(connection: Connection) -> None:
    """Let the transaction at hand fail rather than wait: behind it every writer would wait, too, for a long reader."""
    connection.execute(f"SET LOCAL lock_timeout = {1000 * LOCK_SECONDS}")
