"""What a report tells of the counts that it hides, to somebody who subtracts its tables from each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

from wakupush.pipeline.events.tables import TABLES

Row = dict[str, Any]
#: A row of a table: the table's name, and what names the row.
Cell = tuple[str, tuple[Any, ...]]

KEYS = {table.name: tuple(table.keys) for table in TABLES}
KINDS = {"queue_wait": "received", "answer": "answered", "delivery": "delivered"}


def _funnel(row: Row) -> Iterator[tuple[object, ...]]:
    stage = row["stage"]
    if stage.startswith("delivered_"):
        yield row["day"], stage
    yield row["day"], stage.partition("_at_")[0].partition("_by_")[0]


def _hourly(row: Row) -> Iterator[tuple[object, ...]]:
    yield row["day"], row["kind"]
    yield row["day"], row["kind"], "queue", row["queue"]


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
    if kind == "delivered":
        yield row["day"], "delivered_at_once" if row["attempt"] == 1 else "delivered_by_retry"


def _failures(row: Row) -> Iterator[tuple[object, ...]]:
    yield row["day"], row["kind"]
    yield row["day"], row["kind"], "platform", row["platform"]


#: The sums that a row of a table is a part of: each table that has parts of a sum has all of them.
PARTS: dict[str, Callable[[Row], Iterator[tuple[object, ...]]]] = {
    "funnel_daily": _funnel,
    "load_hourly": _hourly,
    "latency_daily": _latency,
    "retries_daily": _retries,
    "failures_daily": _failures,
    "filtered_daily": lambda row: iter([(row["day"], "filtered")]),
}


def revealed_counts(report: dict[str, list[Row]]) -> dict[Cell, int]:
    """Return the counts that are hidden in a report, and follow from those that are not, one subtraction after another.

    `load_minutes_daily` is not used: it is made of what is shown.
    """
    counts: dict[Cell, int | None] = {}
    sums: dict[tuple[object, ...], dict[str, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for name, parts in PARTS.items():
        for row in report[name]:
            cell = (name, tuple(row[key] for key in KEYS[name]))
            counts[cell] = row["events"]
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
