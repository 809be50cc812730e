"""What is measured each day, what of it has to stay flat, and the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import psycopg
from psycopg.rows import dict_row
from redis import Redis
from rich.table import Table

from chaos import collect
from wakupush.devnet.stack import Stack

#: What may be so much larger in the last quarter than in the second: a factor, and an amount on top.
TOLERANCES: Mapping[str, tuple[float, float]] = {
    "rows": (1.25, 60),
    "bytes": (1.25, 400_000),
    "partitions": (1.0, 1),
    "memory": (1.1, 4 * 2**20),
    "seconds of a job": (2.0, 0.05),
}
#: Those that a table shows in units of 10**6.
_MILLIONS = {"bytes", "memory"}
#: Days that have to be over before the second quarter tells what is normal.
JUDGED_DAYS = 16

#: A table without partitions has no tree.
_TABLES = """
SELECT relname AS name, count(relid) FILTER (WHERE isleaf) AS partitions,
    sum(pg_total_relation_size(coalesce(relid, pg_class.oid)))::bigint AS bytes
FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
LEFT JOIN LATERAL pg_partition_tree(pg_class.oid) ON true
WHERE relkind IN ('r', 'p') AND NOT relispartition AND nspname IN ('public', 'wakupush_lake')
GROUP BY nspname, relname
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """What one day leaves."""

    number: int
    #: By the names of `TOLERANCES`, then by the table, process or job.
    values: Mapping[str, Mapping[str, float]]
    messages: int = 0
    #: Promises that were broken.
    violations: Sequence[str] = field(default=())


def measure(stack: Stack) -> dict[str, dict[str, float]]:
    """Return what is stored, and the memory in use. Of who unregistered a row stays for ever: it does not count."""
    with psycopg.connect(stack.postgres_dsn, autocommit=True, row_factory=dict_row) as connection:
        tables = connection.execute(_TABLES).fetchall()
        rows = {}
        for name in (table["name"] for table in tables):
            schema = "wakupush_lake." if name.startswith("iceberg") else ""
            condition = " WHERE registered" if name == "registrations" else ""
            rows[name] = connection.execute(f"SELECT count(*) AS rows FROM {schema}{name}{condition}").fetchone()[
                "rows"
            ]
        database = connection.execute("SELECT pg_database_size(current_database()) AS bytes").fetchone()
    with Redis.from_url(stack.redis_url) as redis:
        rows["keys in Redis"] = redis.dbsize()
        # Not what its process holds: its allocator takes months to reach its size.
        memory: dict[str, float] = {"redis": redis.info("memory")["used_memory"]}
    for sample in collect.samples(stack):
        memory[sample.name] = memory.get(sample.name, 0) + sample.rss
    return {
        "rows": rows,
        "bytes": {table["name"]: table["bytes"] for table in tables} | {"the database": database["bytes"]},
        "partitions": {table["name"]: table["partitions"] for table in tables if table["partitions"]},
        "memory": memory,
    }


def judge(days: Sequence[Day]) -> list[str]:
    """Return what is wrong: broken promises, and what grows."""
    problems = [f"day {day.number}: {violation}" for day in days for violation in day.violations]
    if len(days) >= JUDGED_DAYS:
        problems += _growth(days)
    return problems


def _growth(days: Sequence[Day]) -> Iterator[str]:
    """Compare the medians of the second and the last quarter."""
    quarter = len(days) // 4
    for kind, name in _names(days):
        before, after = (
            [value for day in part if (value := day.values.get(kind, {}).get(name)) is not None]
            for part in (days[quarter : 2 * quarter], days[-quarter:])
        )
        factor, amount = TOLERANCES[kind]
        if not after:
            yield f"{kind}: {name} has no value in the last quarter"
        elif median(after) > factor * (median(before) if before else 0.0) + amount:
            normal = f"{median(before):.6g}" if before else "nothing"
            yield f"{kind}: {name} grew from {normal} in the second quarter to {median(after):.6g} in the last"


def table(days: Sequence[Day]) -> Table:
    """Return the figures of the first day, of a quarter, half, and the end."""
    columns = [days[position] for position in sorted({0, len(days) // 4, len(days) // 2, len(days) - 1})]
    rows = Table("what", *(f"day {day.number}" for day in columns), title=f"{len(days)} days")
    for kind, name in _names(days):
        unit = 1e6 if kind in _MILLIONS else 1.0
        values = [day.values.get(kind, {}).get(name) for day in columns]
        title = f"{kind}: {name}" if unit == 1.0 else f"MB, {kind}: {name}"
        rows.add_row(title, *("" if value is None else f"{value / unit:.4g}" for value in values))
    rows.add_row("messages", *(str(day.messages) for day in columns))
    return rows


def _names(days: Sequence[Day]) -> list[tuple[str, str]]:
    return [
        (kind, name)
        for kind in TOLERANCES
        for name in sorted({name for day in days for name in day.values.get(kind, {})})
    ]
