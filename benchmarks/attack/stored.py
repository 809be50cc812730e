"""Measuring what is stored: rows and bytes of each table, and Redis' memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Self

from psycopg import Connection, sql
from redis import Redis

#: Every table with its root, which is itself where it is no partition.
TABLES = """
    SELECT nspname, relname, coalesce(pg_partition_root(pg_class.oid), pg_class.oid)::regclass::text
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE relkind = 'r' AND nspname <> 'information_schema' AND nspname NOT LIKE 'pg\\_%'
"""


@dataclass(frozen=True)
class Stored:
    """What is stored, or how much it has grown; partitions count with their table."""

    rows: dict[str, int]
    #: With TOAST and indexes, after VACUUM FULL: what lives, without what is dead or free.
    bytes: dict[str, int]
    #: Bytes of Redis' memory but for what clients and the file's buffer have of it.
    redis: int

    @classmethod
    def now(cls, connection: Connection, redis: Redis) -> Self:
        """Look at everything. Each table is written anew and locked meanwhile, so nothing should be under way."""
        rows: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for schema, name, root in connection.execute(TABLES).fetchall():
            table = sql.Identifier(schema, name)
            connection.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(table))
            count, size = connection.execute(
                sql.SQL("SELECT count(*), pg_total_relation_size({}::regclass) FROM {}").format(
                    sql.Literal(table.as_string()), table
                )
            ).fetchone()
            rows[root] += count
            sizes[root] += size
        memory = redis.info("memory")
        return cls(
            dict(rows),
            dict(sizes),
            memory["used_memory"] - memory["mem_clients_normal"] - memory.get("mem_aof_buffer", 0),
        )

    def since(self, before: Self) -> Self:
        """Return the growth, of those tables that have changed."""
        return type(self)(_growth(self.rows, before.rows), _growth(self.bytes, before.bytes), self.redis - before.redis)


def _growth(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: grown for name in now if (grown := now[name] - before.get(name, 0))}
