"""What each statement of the product reads: a cursor that also explains what it executes."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import Connection, sql

from wakupush.postgres import named_sql

#: What of a plan reads a table or an index of it, and tells of its rows. A bitmap's index is read for its heap.
SCANS = frozenset({"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Tid Scan", "Tid Range Scan"})
_EXPLAINED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
#: What a plan of its own costs a statement that is executed again and again: `cached_plan_cost` of Postgres, about.
_PLANNING_COST = 5.0
_NUMBERS = itertools.count()
_PARAMETER = re.compile(r"%\((\w+)\)[sbt]")


@dataclass(frozen=True)
class Statement:
    """One execution."""

    name: str
    #: Seconds, with the round trip, of the execution that counts: the second one, so its pages are in memory.
    seconds: float
    #: Rows that its scans touched, and rows that it returned or changed.
    scanned_rows: int
    result_rows: int
    #: Tables that were read from their beginning to their end, with the rows of each.
    scanned: dict[str, int]


@dataclass
class Recorder:
    """Keeps what the connections that it is given execute."""

    statements: list[Statement] = field(default_factory=list)

    def watch(self, connection: Connection) -> None:
        """Let a connection explain what it executes: each statement runs twice, the first time in vain."""
        recorder = self

        class Cursor(psycopg.Cursor[Any]):
            def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
                text = _text(query, self.connection)
                plan = _explain(self.connection, text, params) if text.lstrip().startswith(_EXPLAINED) else None
                start_time = time.perf_counter()
                try:
                    return super().execute(query, params, **options)
                finally:
                    if plan is not None:
                        recorder.statements.append(_statement(text, plan, time.perf_counter() - start_time))

        connection.cursor_factory = Cursor


def _text(query: Any, connection: Connection) -> str:
    match query:
        case str():
            return query
        case bytes():  # a limit of its time, and the statement: `requests.failed_within`
            return query.decode().partition("; ")[2]
    return query.as_string(connection)


def _explain(connection: Connection, query: str, values: Any) -> dict[str, Any]:
    """Execute a statement as Postgres would after some times, and take it back; return its plan."""
    names = list(dict.fromkeys(_PARAMETER.findall(query)))
    text = _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", query).replace("%%", "%")
    parameters = [values[name] for name in names]
    arguments = sql.SQL(", ").join(map(sql.Literal, parameters))
    name = f"explained_{next(_NUMBERS)}"
    execute = sql.SQL("EXECUTE {}").format(sql.Identifier(name)) + (
        sql.SQL("({})").format(arguments) if parameters else sql.SQL("")
    )
    with psycopg.Cursor(connection) as cursor, connection.transaction(force_rollback=True):
        cursor.execute(f"PREPARE {name} AS {text}")
        try:
            costs = {}
            for mode in ("force_custom_plan", "force_generic_plan"):
                cursor.execute(sql.SQL("SET LOCAL plan_cache_mode = {}").format(mode))
                cursor.execute(sql.SQL("EXPLAIN (FORMAT JSON) ") + execute)
                costs[mode] = cursor.fetchone()[0][0]["Plan"]["Total Cost"]
            costs["force_custom_plan"] += _PLANNING_COST
            mode = min(reversed(costs), key=costs.__getitem__)
            cursor.execute(sql.SQL("SET LOCAL plan_cache_mode = {}").format(mode))
            cursor.execute(sql.SQL("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ") + execute)
            return cursor.fetchone()[0][0]["Plan"]
        finally:
            if connection.info.transaction_status != psycopg.pq.TransactionStatus.INERROR:
                cursor.execute(f"DEALLOCATE {name}")


def _statement(query: str, plan: dict[str, Any], seconds: float) -> Statement:
    nodes = list(_nodes(plan))
    scans = [node for node in nodes if node["Node Type"] in SCANS]
    return Statement(
        name=NAMES.get(query) or " ".join(query.split())[:40],
        seconds=seconds,
        scanned_rows=int(sum(map(_touched, scans))),
        result_rows=int(
            max(_result_rows(node) for node in nodes if node is plan or node["Node Type"] == "ModifyTable")
        ),
        scanned={
            node["Relation Name"]: int(_touched(node) / max(node["Actual Loops"], 1))
            for node in scans
            if node["Node Type"] == "Seq Scan" and node["Actual Loops"]
        },
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _touched(node: dict[str, Any]) -> float:
    removed = sum(node.get(f"Rows Removed by {why}", 0) for why in ("Filter", "Index Recheck", "Join Filter"))
    return (node["Actual Rows"] + removed) * node["Actual Loops"]


def _result_rows(node: dict[str, Any]) -> float:
    if node["Node Type"] == "ModifyTable":
        return sum(child["Actual Rows"] * child["Actual Loops"] for child in node["Plans"][:1])
    return node["Actual Rows"] * node["Actual Loops"]


def _all_names() -> dict[str, str]:
    folder = Path(named_sql.__file__).parent / "sql"
    return {
        text: f"{file.stem}.{name}"
        for file in sorted(folder.glob("*.sql"))
        for name, text in named_sql.load(file.stem).items()
    }


NAMES = _all_names()
