"""What a report tells of the counts that it hides, to somebody who subtracts its tables from each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

from wakupush.pipeline.report.tables import TABLES

Row = dict[str, Any]
#: A row of a table: the table's name, and what names the row.
Cell = tuple[str, tuple[Any, ...]]

KEYS = {table.name: tuple(table.keys) for table in TABLES}
KINDS = {"queue_wait": "received", "answer": "answered", "delivery": "delivered"}


STAGES = {"delivered_at_once": "delivered", "delivered_by_retry": "delivered", "request_expired": "expired"}


def _funnel(row: Row) -> Iterator[tuple[object, ...]]:
    yield row["day"], "stage", row["stage"]
    yield row["day"], STAGES.get(row["stage"], row["stage"])


def _expired(row: Row) -> Iterator[tuple[object, ...]]:
    if row["kind"] == "expired":
        yield row["day"], "stage", "expired" if row["platform"] else "request_expired"


def _pushes(row: Row) -> Iterator[tuple[object, ...]]:
    yield row["day"], row["kind"]


def _hourly(row: Row) -> Iterator[tuple[object, ...]]:
    yield row["day"], row["kind"]
    yield row["day"], row["kind"], "queue", row["queue"]
    yield row["day"], row["kind"], "platform", row["platform"]
    yield from _expired(row)
    if row["kind"] in {"refused", "received"}:
        yield row["day"], row["kind"], "hour", row["hour"]
    if row["kind"] == "received":
        yield row["day"], row["kind"], "hour", row["hour"], row["queue"]


def _minutes(row: Row) -> Iterator[tuple[object, ...]]:
    yield row["day"], "received"
    yield row["day"], "received", "queue", row["queue"]
    yield row["day"], "received", "hour", row["hour"]
    yield row["day"], "received", "hour", row["hour"], row["queue"]


def _refusals(row: Row) -> Iterator[tuple[object, ...]]:
    yield row["day"], "refused"
    yield row["day"], "refused", "hour", row["hour"]
    yield row["day"], "refused", "failure", row["failure"]


def _latency(row: Row) -> Iterator[tuple[object, ...]]:
    kind = KINDS[row["what"]]
    yield row["day"], kind
    yield row["day"], kind, "queue", row["queue"]
    yield row["day"], kind, "platform", row["platform"]


def _retries(row: Row) -> Iterator[tuple[object, ...]]:
    kind = row["kind"]
    yield row["day"], kind
    yield row["day"], kind, "queue", "dispatch"
    yield row["day"], kind, "platform", row["platform"]
    yield row["day"], kind, "attempt", row["platform"], min(row["attempt"], 3)
    if kind == "delivered":
        yield row["day"], "stage", "delivered_at_once" if row["attempt"] == 1 else "delivered_by_retry"


def _failures(row: Row) -> Iterator[tuple[object, ...]]:
    yield row["day"], row["kind"]
    yield from _expired(row)
    if row["kind"] in {"failed", "unknown"}:
        yield row["day"], row["kind"], "platform", row["platform"]
        yield row["day"], row["kind"], "attempt", row["platform"], row["attempt"]
    if row["kind"] == "refused":
        yield row["day"], "refused", "failure", row["failure"]


#: The sums that a row of a table is a part of: each table that has parts of a sum has all of them. No two of the tables
#: that are not here have parts of the same sum.
PARTS: dict[str, Callable[[Row], Iterator[tuple[object, ...]]]] = {
    "funnel_daily": _funnel,
    "pushes_daily": _pushes,
    "load_hourly": _hourly,
    "latency_daily": _latency,
    "retries_daily": _retries,
    "failures_daily": _failures,
    "refusals_hourly": _refusals,
    "load_minutes_daily": _minutes,
    "filtered_daily": lambda row: iter([(row["day"], "filtered")]),
}


def revealed_counts(report: dict[str, list[Row]]) -> dict[Cell, int]:
    """Return the counts that are hidden in a report, and follow from others, one subtraction after another."""
    counts: dict[Cell, int | None] = {}
    sums: dict[tuple[object, ...], dict[str, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for name, parts in PARTS.items():
        for row in report[name]:
            cell = (name, tuple(row[key] for key in KEYS[name]))
            counts[cell] = row["messages" if "messages" in row else "events"]
            for part in parts(row):
                sums[part][name].append(cell)
    revealed: dict[Cell, int] = {}
    while more := dict(_subtract(counts, sums)):
        counts |= more
        revealed |= more
    return revealed


def _subtract(counts, sums) -> Iterator[tuple[Cell, int]]:
    for of_tables in sums.values():
        for one, other in permutations(of_tables.values(), 2):
            hidden_cells = [cell for cell in one if counts[cell] is None]
            if len(hidden_cells) == 1 and None not in (counts[cell] for cell in other):
                yield (
                    hidden_cells[0],
                    sum(counts[c] for c in other) - sum(counts[c] for c in one if counts[c] is not None),
                )
