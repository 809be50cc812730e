"""Partitions by day or week, retention, and what rows tell of their time."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta
from typing import Final

import psycopg
from psycopg import Connection

from wakupush.postgres.named_sql import load, value

_SQL = load("maintenance")
#: How many days ahead partitions exist.
DAYS_AHEAD: Final = 3
#: The most rows to delete in one transaction.
CHUNK_ROWS: Final = 10_000
#: Seconds for which maintenance waits for each lock that keeps writers out.
LOCK_SECONDS: Final = 1
#: Days from today on into which rows may be written now: no sender's time lies ahead by more than a day.
DAYS_IN_USE: Final = 1
LEDGER: Final = "ledger"
EVENTS: Final = "delivery_events"
ADMITTED_REQUESTS: Final = "admitted_requests"
#: Tables with a partition for each day or week (UTC, from Monday) and one for everything else, and the days of each.
DAYS_PER_PARTITION: Final = {LEDGER: 1, EVENTS: 1, ADMITTED_REQUESTS: 7}
#: Tables with users' names whose rows are put in order when their day is over.
SORTED: Final = ("registrations", "query_topics", "deliveries")
#: The rows of one transaction, which may be long ones. Those of one user are fewer.
SORTED_ROWS: Final = 1000


def create_partitions(connection: Connection, today: date) -> None:
    """Make the partitions of yesterday to `DAYS_AHEAD` days from now. No row is moved, and no write waits for a scan.

    A day whose rows are in the default partition already stays there; retention finds them there, too. For a future day
    the default partition first gets a constraint that it takes no row of that day, which is validated while others
    write. So Postgres need not look at its rows while it holds the lock. A day in use cannot be ruled out like this: it
    gets a partition only while the default one is empty, as at the first start.

    Args:
        connection: in autocommit mode; each step is a transaction of its own.
        today: by the clock of the caller.

    Raises:
        LockNotAvailable: another transaction uses the tables for longer than `LOCK_SECONDS`.
    """
    for table, days in DAYS_PER_PARTITION.items():
        for day in sorted({_first_day(today + timedelta(days=offset), days) for offset in range(-1, DAYS_AHEAD + 1)}):
            if value(connection, _SQL["exists"], {"name": f"{table}_{day:%Y%m%d}"}):
                continue
            if day > today + timedelta(days=DAYS_IN_USE):
                _promise_and_attach(connection, table, day)
            else:
                _do("attach if empty", connection, table, day)


def _first_day(day: date, days: int) -> date:
    return day if days == 1 else day - timedelta(days=day.weekday())


def _promise_and_attach(connection: Connection, table: str, day: date) -> None:
    if _do("has rows", connection, table, day):
        return
    _do("promise", connection, table, day)
    try:
        _do("check", connection, table, day)
        _do("attach", connection, table, day)
    except psycopg.Error as error:
        _do("take back", connection, table, day)
        # A row of the day was inserted since: the day stays where it is.
        if not isinstance(error, psycopg.errors.CheckViolation):
            raise


def _do(step: str, connection: Connection, table: str, day: date) -> bool:
    """Take a step towards the partition of a day; the steps are those of the function in Postgres."""
    with connection.transaction():
        if step in {"has rows", "check"}:  # these read rows, and lock no writer out
            connection.execute("SET LOCAL statement_timeout = 0")
        else:
            wait_shortly_for_locks(connection)
        return bool(value(connection, _SQL["create_partition"], {"table": table, "day": day, "step": step}))


def drop_partitions(connection: Connection, table: str, keep: float) -> int:
    """Drop the partitions that have got no row for `keep` seconds, unread; return how many.

    A day gets rows until the next one is over, a week until it is over.

    Args:
        connection: in autocommit mode; each drop is a transaction of its own.
        table: one of `DAYS_PER_PARTITION`.
        keep: seconds for which rows are kept. Of what came in later than a day after the day of its timestamp, the
            ledger has another row in the default partition.

    Raises:
        LockNotAvailable: another transaction uses the tables for longer than `LOCK_SECONDS`.
    """
    count = 0
    for day in _days(connection, table):
        with connection.transaction():
            wait_shortly_for_locks(connection)
            count += bool(value(connection, _SQL["drop_partition"], {"table": table, "day": day, "keep": keep}))
    return count


def _days(connection: Connection, table: str) -> list[str]:
    """Return the days of the partitions of a table, as their names have them, the oldest first."""
    names = connection.execute(_SQL["partitions"], {"table": table}).fetchall()
    return [day for (name,) in names if (day := name.removeprefix(f"{table}_")).isdigit()]


def export_is_known(connection: Connection) -> bool:
    """Return whether an export takes the events into a lake."""
    return bool(value(connection, _SQL["export_is_known"]))


def drop_events(connection: Connection, keep: float, keep_missing: float, most_bytes: int) -> Counter[str]:
    """Drop days of events that are past their time, the oldest first; count the days ``dropped`` and ``lost``.

    Args:
        connection: in autocommit mode; each drop is a transaction of its own.
        keep: seconds for which events are kept that the lake has, or all if there is no export.
        keep_missing: seconds for which events are kept that the lake is still to get; then they are lost to it.
        most_bytes: of all events with their indexes. Above that, `keep` holds for all.

    Raises:
        LockNotAvailable: another transaction uses the tables for longer than `LOCK_SECONDS`.
    """
    outcomes: Counter[str] = Counter()
    for day in _days(connection, EVENTS):
        is_too_much = value(connection, _SQL["event_bytes"]) > most_bytes
        values = {"day": day, "keep": keep, "keep_missing": keep if is_too_much else keep_missing}
        with connection.transaction():
            wait_shortly_for_locks(connection)
            outcome = value(connection, _SQL["drop_events"], values)
        if outcome != "kept":
            outcomes[outcome] += 1
    return outcomes


def delete(connection: Connection, table: str, keep: float, keep_missing: float = 0.0) -> int:
    """Delete rows that are past their time, at most `CHUNK_ROWS`; return how many.

    Args:
        table: that has them; the name of the query in ``postgres/sql/maintenance.sql``.
        keep: seconds for which rows are kept.
        keep_missing: the same for events that an export has yet to take.
    """
    values = {"keep": keep, "keep_missing": keep_missing, "most": CHUNK_ROWS}
    return connection.execute(_SQL[table], values).rowcount


def sort(connection: Connection, table: str, start: bytes) -> bytes | None:
    """Write those of the next `SORTED_ROWS` rows anew that are of past days: in the order of keys, with times in days.

    After that neither the time nor the place of a row leads to an event. Locked rows stay as they are; only for the
    devices of deliveries it waits.

    Args:
        connection: to be committed before the next step.
        table: one of `SORTED`; of deliveries, the dead letters and those that expired.
        start: the first key; empty for the first step.

    Returns:
        Where the next step begins, None behind the last row.
    """
    next_start: bytes | None = value(
        connection, _SQL["sort_rows"], {"table": table, "start": start, "most": SORTED_ROWS}
    )
    return next_start


def wait_shortly_for_locks(connection: Connection) -> None:
    """Let this transaction fail rather than wait long: while it waits for a reader, every writer waits behind it."""
    connection.execute(f"SET LOCAL lock_timeout = {1000 * LOCK_SECONDS}")
