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
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake.catalog import NAMESPACE
from wakupush.pipeline.lake.lake import Lake
from wakupush.pipeline.lake.pseudonyms import whole_periods
from wakupush.pipeline.report.tables import TABLES, Row, Table, devices
from wakupush.runtime.settings import CANARY

ROWS: Final = f"{NAMESPACE}.report_rows"
DEVICES: Final = f"{NAMESPACE}.report_devices"
#: To be raised when a row means something else than before although no column changes.
VERSION: Final = 3
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
class Result:
    """What was made of a day or a period."""

    #: Of which events: it changes with their number.
    basis: str
    #: Rows of each table, without the column of their day or period.
    rows: dict[str, list[Row]]


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

    Raises:
        PipelineError: the lake has no event of the days.
    """
    begin, end = whole_periods(first, last, days)
    # Counted before they are read: what is appended meanwhile makes the next report look again.
    sizes = {day: size for day, size in lake.sizes().items() if begin <= day <= end}
    bases = {day: f"{_FORMAT} {size}" for day, size in sizes.items()}
    if not any(first <= day <= last for day in sizes):
        raise PipelineError(f"the lake has no event of {first} to {last}: run `wakupush pipeline export`")
    lake.create(ROWS, _ROWS, "span, begin", "Rows of reports before rows about few people lose their values")
    lake.create(DEVICES, _DEVICES, "day", "Devices of each day, with pseudonyms of a period")
    results = {} if rebuild else _read(lake, begin, end)
    stale = [day for day, basis in bases.items() if not _is_current(results, Span("day", day), basis)]
    progress(0, len(stale))
    count = 0
    for part in _parts(stale, sizes):
        results |= _make_days(lake, {day: bases[day] for day in part})
        count += len(part)
        progress(count, len(stale))
    periods: dict[date, dict[date, str]] = {}
    for day, basis in bases.items():
        periods.setdefault(whole_periods(day, day, days)[0], {})[day] = basis
    for period, of_days in periods.items():
        basis = hashlib.sha256(json.dumps([days, *map(str, of_days), *of_days.values()]).encode()).hexdigest()
        if not _is_current(results, Span("period", period), basis):
            results |= _make_period(lake, period, basis, list(of_days))
    spans = [Span("day", day) for day in sizes if first <= day <= last] + [Span("period", begin) for begin in periods]
    return {
        table.name: [
            {table.time: span.begin, **row}
            for span in spans
            if span.kind == table.time and span in results
            for row in results[span].rows.get(table.name, [])
        ]
        for table in TABLES
    }


def forget(lake: Lake, before: date) -> None:
    """Delete what is known of days before one."""
    if lake.spark.catalog.tableExists(ROWS):
        lake.spark.sql(f"DELETE FROM {ROWS} WHERE begin < DATE '{before}'")
        lake.spark.sql(f"DELETE FROM {DEVICES} WHERE day < DATE '{before}'")


def discard(lake: Lake, days: Iterable[date]) -> None:
    """Let the next report make these days and all periods again: a day may get as many events as before, but others."""
    if lake.spark.catalog.tableExists(ROWS):
        begins = ", ".join(f"DATE '{day}'" for day in days)
        lake.spark.sql(f"DELETE FROM {ROWS} WHERE span = 'period' OR begin IN ({begins})")


def _is_current(results: Mapping[Span, Result], span: Span, basis: str) -> bool:
    return span in results and results[span].basis == basis


def _read(lake: Lake, begin: date, end: date) -> dict[Span, Result]:
    return _results(lake.spark.table(ROWS).where(F.col("begin").between(begin, end)).collect())


def _results(entries: Iterable[Any]) -> dict[Span, Result]:
    """Return what rows of `ROWS` say of each day and period; one without a table's name says that it has no rows."""
    results: dict[Span, Result] = {}
    for entry in entries:
        result = results.setdefault(Span(entry["span"], entry["begin"]), Result(entry["basis"], {}))
        if entry["name"]:
            result.rows.setdefault(entry["name"], []).append(json.loads(entry["row"]))
    return results


def _parts(days: Iterable[date], sizes: Mapping[date, int]) -> Iterator[list[date]]:
    part: list[date] = []
    for day in days:
        if part and sum(sizes[each] for each in part) + sizes[day] > EVENTS_AT_ONCE:
            yield part
            part = []
        part.append(day)
    if part:
        yield part


def _make_days(lake: Lake, bases: Mapping[date, str]) -> dict[Span, Result]:
    """Make the results of some days (a basis for each) and store them; the devices first."""
    # Nobody uses the devices of `wakupush canary`.
    is_canary = F.coalesce(F.col("app"), F.lit("")) == CANARY
    events = lake.events().where(F.col("day").isin(*bases) & ~is_canary)
    devices(events).writeTo(DEVICES).overwrite(F.col("day").isin(*bases))
    return _make(lake, "day", events, bases)


def _make_period(lake: Lake, period: date, basis: str, of_days: list[date]) -> dict[Span, Result]:
    frame = lake.spark.table(DEVICES).where(F.col("day").isin(*of_days)).withColumn("period", F.lit(period))
    return _make(lake, "period", frame, {period: basis})


def _make(lake: Lake, kind: str, frame: DataFrame, bases: Mapping[date, str]) -> dict[Span, Result]:
    """Make all tables of days or of periods in one job, and store their rows in one commit."""
    parts = [_rows(table, table.build(frame)) for table in TABLES if table.time == kind]
    triples = [tuple(row) for row in reduce(DataFrame.unionByName, parts).collect()]
    # Else each report would make a day without rows again.
    triples += [(begin, "", "{}") for begin in bases.keys() - {begin for begin, _, _ in triples}]
    entries = [dict(zip(_ROWS, (kind, begin, bases[begin], name, row), strict=True)) for begin, name, row in triples]
    lake.replace(ROWS, lake.frame(entries, _ROWS), (F.col("span") == kind) & F.col("begin").isin(*bases))
    return _results(entries)


def _rows(table: Table, frame: DataFrame) -> DataFrame:
    texts = [name for name, kind in table.keys.items() if kind == "text"]
    values = [F.col(name) for name in frame.columns if name != table.time]
    return frame.fillna("", texts).select(
        F.col(table.time).alias("begin"),
        F.lit(table.name).alias("name"),
        F.to_json(F.struct(*values), {"ignoreNullFields": "false"}).alias("row"),
    )
