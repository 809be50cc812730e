"""Running the work on an old and large database, and judging it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import psycopg
from rich.table import Table

from benchmarks.age.fill import DAY
from benchmarks.age.statements import Recorder, Statement
from benchmarks.age.work import Work
from benchmarks.made import SHARD
from wakupush.model.entries import Entry
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import backlog, ledger, query_topics

#: Seconds of a statement, and the share of a day that a job needs for a day's work.
MOST_SECONDS = 1.0
MOST_SHARE = 0.1
#: Seconds for which a statement may wait for a lock.
MOST_WAIT = 0.05
#: Rows that a statement may read for each that it returns or changes, and those that any may read.
MOST_RATIO = 10
FREE_ROWS = 5_000
#: Rows of a table that may be read as a whole.
SMALL_TABLE = 20_000
#: Counts of the exporter, of two platforms, each up to a limit; and the statements that may read so much.
COUNTS = 6
BOUNDED = {"backlog.waiting": COUNTS * backlog.MOST}
MIB = 2**20


@dataclass(frozen=True)
class Result:
    """What a piece of work took."""

    work: Work
    rows: int
    #: In all, with what explaining its statements took, and of these alone.
    elapsed: float
    seconds: float
    statements: list[Statement]
    #: Bytes of write-ahead log.
    wal: int
    #: Seconds of the longest wait of others for a lock.
    lock_wait: float
    failure: str = ""

    @property
    def share(self) -> float:
        """The share of a day that the statements of a day's work take."""
        if self.rows and self.work.rows_a_day:
            return self.seconds / self.rows * self.work.rows_a_day / DAY
        return self.seconds * self.work.runs_a_day / DAY

    def findings(self) -> Iterator[str]:
        """Say what must not be."""
        if self.failure:
            yield f"{self.work.name} failed: {self.failure}"
        if self.lock_wait > MOST_WAIT:
            yield f"{self.work.name}: others waited {1000 * self.lock_wait:.0f} ms for a lock"
        if not self.work.may_be_long and self.share > MOST_SHARE:
            yield f"{self.work.name}: {100 * self.share:.0f} % of a day for the work of a day"
        yield from findings(self.statements, with_times=not self.work.may_be_long)


def findings(statements: Iterable[Statement], *, with_times: bool) -> Iterator[str]:
    """Say which statements read too much, or take too long."""
    for one in {each.name: each for each in sorted(statements, key=lambda each: each.scanned_rows)}.values():
        if large := {table: rows for table, rows in one.scanned.items() if rows > SMALL_TABLE}:
            yield f"{one.name} reads all of {', '.join(f'{table} ({rows:,} rows)' for table, rows in large.items())}"
        elif one.scanned_rows > BOUNDED.get(one.name, FREE_ROWS) + MOST_RATIO * one.result_rows:
            yield f"{one.name} reads {one.scanned_rows:,} rows for {one.result_rows:,}"
        if with_times and one.seconds > MOST_SECONDS:
            yield f"{one.name} takes {one.seconds:.1f} s"


def run(work: Work, recorder: Recorder, connection: psycopg.Connection, waits: Callable[[], float]) -> Result:
    """Run a piece of work once.

    Args:
        work: to run.
        recorder: of the connections that it uses.
        connection: to the database, in autocommit mode, not recorded.
        waits: returns the longest wait of others since the last call.
    """
    recorder.statements.clear()
    waits()
    before = _wal(connection)
    failure, rows, start_time = "", 0, time.monotonic()
    try:
        result = work.run()
        rows = result if isinstance(result, int) and not isinstance(result, bool) else 0
    except Exception as error:  # noqa: BLE001 - a table of what works has a row for what does not
        failure = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    elapsed = time.monotonic() - start_time
    wal = _wal(connection) - before
    statements = list(recorder.statements)
    return Result(
        work,
        rows,
        elapsed,
        sum(each.seconds for each in statements),
        statements,
        wal,
        waits(),
        failure,
    )


def _wal(connection: psycopg.Connection) -> int:
    """Return the bytes of write-ahead log so far."""
    statement = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
    return connection.execute(statement).fetchone()[0]


@dataclass
class Bystander:
    """Registers all the time, as users do, and takes it back; the log of Postgres says how long it waited for locks."""

    dsn: str
    log: Path
    _position: int = 0
    _over: Event = field(default_factory=Event)

    def longest(self) -> float:
        """Return the seconds of the longest wait for a lock since the last call, of those above `MOST_WAIT`."""
        with self.log.open("rb") as log:
            log.seek(self._position)
            text = log.read().decode(errors="replace")
            self._position = log.tell()
        return max(
            (
                float(milliseconds) / 1000
                for milliseconds in re.findall(r"(?:acquired|waiting for) .* after ([\d.]+) ms", text)
            ),
            default=0.0,
        )

    @contextmanager
    def beside(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as executor:
            going_on = executor.submit(self._go_on)
            try:
                yield
            finally:
                self._over.set()
            going_on.result()

    def _go_on(self) -> None:
        with psycopg.connect(self.dsn) as connection:
            while not self._over.wait(0.01):
                query_topics.add(connection, [bytes(64)])
                message = WakuMessage(payload=b"", content_topic="", timestamp=time.time_ns())
                ledger.add(connection, [Entry(SHARD, bytes(32), 0.0, message)])
                connection.rollback()


def table(results: Iterable[Result]) -> Table:
    """Return a row for each piece of work."""
    work_table = Table(
        "work",
        "rows",
        "s",
        "of statements",
        "rows read",
        "wanted",
        "log, MiB",
        "wait, ms",
        "% of a day",
        box=None,
    )
    for column in work_table.columns[1:]:
        column.justify = "right"
    for one in results:
        work_table.add_row(
            one.work.name,
            f"{one.rows:,}",
            f"{one.elapsed:.3f}",
            f"{one.seconds:.3f}",
            f"{sum(each.scanned_rows for each in one.statements):,}",
            f"{sum(each.result_rows for each in one.statements):,}",
            f"{one.wal / MIB:.2f}",
            f"{1000 * one.lock_wait:.0f}",
            f"{100 * one.share:.2f}" if one.work.runs_a_day else "",
        )
    return work_table
