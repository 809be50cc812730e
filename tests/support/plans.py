"""What a statement reads, by its plan."""

from __future__ import annotations

from typing import Any

from psycopg import Connection


def executed(connection: Connection, statement: str, values: Any = None) -> list[dict[str, Any]]:
    """Execute a statement; return the nodes of its plan, the outermost first, each with the rows that it had."""
    [[[result]]] = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values).fetchall()
    nodes = [result["Plan"]]
    for node in nodes:
        nodes += node.get("Plans", [])
    return nodes
