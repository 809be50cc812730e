"""What reports know of each day and period, kept in the lake: made once, and again only if the day's events change.

A report of four weeks reads the events of the days that are new to it. The rows of the others, before `anonymous`, are
in `ROWS`. What tables of a period need of each day is in `DEVICES`, with the pseudonyms of the events; both go with
their days. Nothing is lost with them: a report makes again what is missing.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import reduce
from itertools import groupby
from operator import itemgetter
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from wakupush.pipeline.events.catalog import NAMESPACE
from wakupush.pipeline.events.lake import Lake
from wakupush.pipeline.events.pseudonyms import whole_periods
from wakupush.pipeline.events.tables import TABLES, Row, Table, devices

ROWS: Final = f"{NAMESPACE}.report_rows"
DEVICES: Final = f"{NAMESPACE}.report_devices"
#: To be raised when a row means something else than before although no column changes.
VERSION: Final = 1
#: Events of the days that are made together, at most, unless one day has more. A run that is killed loses no more.
EVENTS_AT_ONCE: Final = 20_000_000
_FORMAT: Final = hashlib.sha256(
    json.dumps([VERSION, *((table.name, [*table.keys], [*table.values]) for table in TABLES)]).encode()
).hexdigest()[:8]
_ROWS: Final = {"span": "string", "begin": "date", "basis": "string", "name": "string", "row": "string"}
_DEVICES: Final = {
    "day": "date",
    "platform": "string",
    "installation": "binary",
    "person": "binary",
    "registered": "boolean",
    "notified": "boolean",
    "died": "boolean",
}


@dataclass(frozen=True, slots=True)
class Span:
    """A day, or a period of pseudonyms."""

    #: The column that has its first day in the tables: day or period.
    kind: str
    begin: date


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a day or a period."""

    #: Of which events: it changes with their number.
    basis: str
    #: Rows of each table, without the column of their day or period.
    rows: Mapping[str, list[Row]]


def rows(
    lake: Lake, first: date, last: date, days: int, progress: Callable[[int, int], None], *, rebuild: bool = False
) -> dict[str, list[Row]]:
    """Return the rows of every table: those of the days, and of all periods that the days are in.

    Rows of a period count all its days, even if the report is of only some of them: otherwise each later report would
    count fewer events of the period.

    Args:
        days: of a period of pseudonyms.
        progress: called with the days made so far, and the number of those to make.
        rebuild: whether to make everything anew.
    """
    begin, end = whole_periods(first, last, days)
    # Counted before they are read: what is appended meanwhile makes the next report look again.
    sizes = {day: size for day, size in lake.sizes().items() if begin <= day <= end}
    _prepare(lake)
    known = {} if rebuild else _read(lake, begin, end)
    bases = {day: f"{_FORMAT} {size}" for day, size in sizes.items()}
    stale = [day for day, basis in bases.items() if not _is_known(known, Span("day", day), basis)]
    progress(0, len(stale))
    made = 0
    for part in _parts(stale, sizes):
        known |= _make_days(lake, {day: bases[day] for day in part}, days)
        made += len(part)
        progress(made, len(stale))
    periods: dict[date, dict[date, str]] = {}
    for day, basis in bases.items():
        periods.setdefault(whole_periods(day, day, days)[0], {})[day] = basis
    for period, of_days in periods.items():
        basis = hashlib.sha256(json.dumps([days, *map(str, of_days), *of_days.values()]).encode()).hexdigest()
        if not _is_known(known, Span("period", period), basis):
            known |= _make_period(lake, period, basis, list(of_days), days)
    spans = [Span("day", day) for day in sizes if first <= day <= last] + [Span("period", begin) for begin in periods]
    return {
        table.name: [
            {table.time: span.begin, **row}
            for span in spans
            if span.kind == table.time and span in known
            for row in known[span].rows.get(table.name, [])
        ]
        for table in TABLES
    }


def forget(lake: Lake, before: date) -> None:
    """Delete what is known of days before one."""
    if lake.spark.catalog.tableExists(ROWS):
        lake.spark.sql(f"DELETE FROM {ROWS} WHERE begin < DATE '{before}'")
        lake.spark.sql(f"DELETE FROM {DEVICES} WHERE day < DATE '{before}'")


def discard(lake: Lake, days: Iterable[date]) -> None:
    """Let the next report make these days again."""
    if lake.spark.catalog.tableExists(ROWS):
        for day in days:
            lake.spark.sql(f"DELETE FROM {ROWS} WHERE span = 'day' AND begin = DATE '{day}'")


def _prepare(lake: Lake) -> None:
    for name, columns, partition, comment in (
        (ROWS, _ROWS, "span, begin", "Rows of reports before rows about few people lose their values"),
        (DEVICES, _DEVICES, "day", "Devices of each day, with pseudonyms of a period"),
    ):
        listed = ", ".join(f"`{column}` {kind}" for column, kind in columns.items())
        lake.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {name} ({listed}) USING iceberg PARTITIONED BY ({partition})"
            f" COMMENT '{comment}' TBLPROPERTIES ('write.metadata.delete-after-commit.enabled' = 'true')"
        )


def _is_known(known: Mapping[Span, Known], span: Span, basis: str) -> bool:
    return span in known and known[span].basis == basis


def _read(lake: Lake, begin: date, end: date) -> dict[Span, Known]:
    stored = lake.spark.table(ROWS).where(F.col("begin").between(begin, end)).collect()
    by_span = itemgetter("span", "begin", "basis")
    return {
        Span(span, begin): Known(basis, _by_table((row["name"], json.loads(row["row"])) for row in group))
        for (span, begin, basis), group in groupby(sorted(stored, key=by_span), key=by_span)
    }


def _by_table(pairs: Iterable[tuple[str, Row]]) -> dict[str, list[Row]]:
    by_table: dict[str, list[Row]] = {}
    for name, row in pairs:
        by_table.setdefault(name, []).append(row)
    return by_table


def _parts(days: Iterable[date], sizes: Mapping[date, int]) -> Iterator[list[date]]:
    part: list[date] = []
    for day in days:
        if part and sum(sizes[each] for each in part) + sizes[day] > EVENTS_AT_ONCE:
            yield part
            part = []
        part.append(day)
    if part:
        yield part


def _make_days(lake: Lake, bases: Mapping[date, str], days: int) -> dict[Span, Known]:
    """Make what is known of some days (a basis for each) and store it; their devices first."""
    events = lake.events().where(F.col("day").isin(*bases))
    devices(events).writeTo(DEVICES).overwrite(F.col("day").isin(*bases))
    return _make(lake, "day", events, bases, days)


def _make_period(lake: Lake, period: date, basis: str, of_days: list[date], days: int) -> dict[Span, Known]:
    frame = lake.spark.table(DEVICES).where(F.col("day").isin(*of_days))
    return _make(lake, "period", frame, {period: basis}, days)


def _make(lake: Lake, kind: str, frame: DataFrame, bases: Mapping[date, str], days: int) -> dict[Span, Known]:
    """Make all tables of days or of periods in one job, and store their rows in one commit."""
    parts = [_rows(table, table.build(frame, days)) for table in TABLES if table.time == kind]
    made = [tuple(row) for row in reduce(DataFrame.unionByName, parts).collect()]
    stored = [dict(zip(_ROWS, (kind, begin, bases[begin], name, text), strict=True)) for begin, name, text in made]
    lake.replace(ROWS, lake.frame(stored, _ROWS), (F.col("span") == kind) & F.col("begin").isin(*bases))
    return {
        Span(kind, begin): Known(
            bases[begin], _by_table((name, json.loads(text)) for of, name, text in made if of == begin)
        )
        for begin in bases
    }


def _rows(table: Table, frame: DataFrame) -> DataFrame:
    texts = [name for name, kind in table.keys.items() if kind == "text"]
    values = [F.col(name) for name in frame.columns if name != table.time]
    return frame.fillna("", texts).select(
        F.col(table.time).alias("begin"),
        F.lit(table.name).alias("name"),
        F.to_json(F.struct(*values), {"ignoreNullFields": "false"}).alias("row"),
    )
