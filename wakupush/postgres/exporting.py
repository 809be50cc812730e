"""Reading delivery events exactly once, by the transactions that wrote them (ADR 9)."""

from dataclasses import dataclass
from datetime import date, datetime

from psycopg import Connection

from wakupush.postgres.named_sql import load, value

_SQL = load("exporting")
#: Key of the advisory lock for writing to the lake ("the lake" in ASCII).
LOCK = 0x746865206C616B65


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to where events are complete."""

    #: Every transaction with a lower number has ended.
    transaction: int
    #: Which Postgres cluster counts these transactions.
    source: str
    #: Its timeline: a restore to an earlier time, and a promotion, begin another one.
    timeline: int


@dataclass(frozen=True, slots=True)
class Extent:
    """A summary of the events of a range of transactions."""

    #: On which they happened, in UTC.
    days: tuple[date, ...]
    #: The newest version of their schema.
    version: int
    rows: int


def lock(connection: Connection) -> bool:
    """Keep others from writing to the lake until the connection ends; return False if another process is writing."""
    return bool(value(connection, _SQL["lock"], {"lock": LOCK}))


def mark(connection: Connection) -> Mark:
    """Return up to where events are complete now."""
    row = connection.execute(_SQL["mark"]).fetchone()
    assert row is not None  # noqa: S101 - it has no WHERE
    return Mark(*row)


def count(connection: Connection, start: int, end: int) -> int:
    """Return the number of events of the transactions from ``start`` up to before ``end``."""
    return int(value(connection, _SQL["count"], {"start": start, "end": end}))


def slices(connection: Connection, start: int, end: int, *, rows: int, most: int) -> list[tuple[int, int]]:
    """Cut the first events of a range of transactions into slices of about the same size, at transactions.

    Args:
        start: first transaction.
        end: transaction behind the last.
        rows: events in all slices together, about: transactions are whole.

    Returns:
        Ranges of transactions without a gap, the first from ``start``; none if there is no event.
    """
    values = {"start": start, "end": end, "rows": rows, "slices": most}
    ends = sorted({end for (end,) in connection.execute(_SQL["slices"], values)})
    return list(zip([start, *ends], ends, strict=False))


def extent(connection: Connection, start: int, end: int) -> Extent:
    """Return a summary of the events of a range of transactions; there is at least one."""
    row = connection.execute(_SQL["extent"], {"start": start, "end": end}).fetchone()
    assert row is not None  # noqa: S101 - an aggregate has one row
    days, version, rows = row
    return Extent(tuple(days or ()), version or 0, rows)


def last_event(connection: Connection, transaction: int) -> float | None:
    """Return when the last event of a transaction happened, seconds since the epoch; None if there is none any more."""
    at: datetime | None = value(connection, _SQL["last_event"], {"transaction": transaction})
    return at.timestamp() if at else None


def note_exported(connection: Connection, transaction: int) -> None:
    """Let retention know the last transaction whose events the lake has; in autocommit mode it knows at once."""
    connection.execute(_SQL["note_exported"], {"transaction": transaction})


def has_others_than(connection: Connection, worker: str) -> bool:
    """Return whether there are events of other workers than one."""
    return bool(value(connection, _SQL["others_than"], {"worker": worker}))


def note_run(connection: Connection, job: str, seconds: float) -> None:
    """Store that a job of the pipeline has ended well, and how long it took."""
    connection.execute(_SQL["note_run"], {"job": job, "seconds": seconds})
