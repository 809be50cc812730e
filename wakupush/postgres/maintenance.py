"""Partitions by day, and retention."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from psycopg import sql

from wakupush.model.retention import Partitioned, RetentionRule
from wakupush.postgres.named_sql import load

if TYPE_CHECKING:
    from psycopg import Connection


_SQL = load("maintenance")
#: Days for which partitions are made ahead.
DAYS_AHEAD: Final = 3
#: Rows that are deleted in one transaction at most.
CHUNK_ROWS: Final = 10_000
#: Seconds for which making or dropping partitions waits for each lock.
LOCK_SECONDS: Final = 1

_CREATE: Final = "CREATE TABLE {partition} (LIKE {table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
_MOVE: Final = (
    "WITH moved AS (DELETE FROM {default} WHERE {column} >= {start} AND {column} < {end} RETURNING *)"
    " INSERT INTO {partition} SELECT * FROM moved"
)
_ATTACH: Final = "ALTER TABLE {table} ATTACH PARTITION {partition} FOR VALUES FROM ({start}) TO ({end})"


LEDGER: Final = Partitioned("ledger", "message_timestamp", lambda day: int(day.timestamp()) * 10**9, "received_at")
EVENTS: Final = Partitioned("delivery_events", "time", lambda day: day, "time")
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
            _create_partition(connection, table, today + timedelta(days=offset))


def _create_partition(connection: Connection, table: Partitioned, day: date) -> None:
    """Make the partition of a day, and move there what went to the default partition before it was made."""
    name = _partition(table, day)
    if _exists(connection, name):
        return
    connection.execute(sql.SQL("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE").format(sql.Identifier(table.name)))
    if _exists(connection, name):
        return
    start = datetime.combine(day, time.min, UTC)
    parts = {
        "partition": sql.Identifier(name),
        "table": sql.Identifier(table.name),
        "default": sql.Identifier(f"{table.name}_default"),
        "column": sql.Identifier(table.column),
        "start": sql.Literal(table.bound(start)),
        "end": sql.Literal(table.bound(start + timedelta(days=1))),
    }
    for statement in (_CREATE, _MOVE, _ATTACH):
        connection.execute(sql.SQL(statement).format(**parts))


def drop_partitions(connection: Connection, table: Partitioned, keep: float, today: date) -> int:
    """Drop the partitions of days that are over for `keep` seconds, once all their rows came in before that.

    Raises:
        LockNotAvailable: somebody else uses the tables for longer than `LOCK_SECONDS`.
    """
    _wait_shortly_for_locks(connection)
    dropped = 0
    for (name,) in connection.execute(_SQL["partitions"], {"table": table.name}).fetchall():
        suffix = name.removeprefix(f"{table.name}_")
        if not suffix.isdigit():
            continue
        day = datetime.strptime(suffix, "%Y%m%d").replace(tzinfo=UTC).date()
        if (today - day).days * 86_400 <= keep + 86_400:
            continue
        fresh = connection.execute(
            sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {} > now() - %s * interval '1 second')").format(
                sql.Identifier(name), sql.Identifier(table.received)
            ),
            [keep],
        ).fetchone()
        if fresh is not None and not fresh[0]:
            connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
            dropped += 1
    return dropped


def delete(connection: Connection, rule: RetentionRule) -> int:
    """Delete rows that a rule no longer keeps, at most `CHUNK_ROWS`; return how many."""
    return connection.execute(_SQL[rule.name], {"keep": rule.keep, "most": CHUNK_ROWS}).rowcount


def _wait_shortly_for_locks(connection: Connection) -> None:
    """Let the transaction at hand fail rather than wait: behind it every writer would wait, too, for a long reader."""
    connection.execute(f"SET LOCAL lock_timeout = {1000 * LOCK_SECONDS}")


def _partition(table: Partitioned, day: date) -> str:
    return f"{table.name}_{day:%Y%m%d}"


def _exists(connection: Connection, name: str) -> bool:
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [name]).fetchone()
    return row is not None and bool(row[0])
