"""Named SQL out of the files in ``sql/``: ``-- name: NAME`` starts a query, which ends where the next one starts."""

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, LiteralString

from psycopg import Connection
from psycopg.abc import QueryNoTemplate

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return rows as one list for each column, as statements with ``unnest`` take them.

    Args:
        rows: at least one, all with the same names.
    """
    return {name: [row[name] for row in rows] for name in rows[0]}


def value(connection: Connection, query: QueryNoTemplate, values: Mapping[str, Any] | None = None) -> Any:
    """Return the first column of the first row that a query returns; None without a row."""
    row = connection.execute(query, values).fetchone()
    return None if row is None else row[0]


def load(subject: str) -> dict[str, LiteralString]:
    """Return the queries of ``sql/SUBJECT.sql`` by name."""
    text = (resources.files(__package__) / "sql" / f"{subject}.sql").read_text()
    _, *parts = _NAME.split(text)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}
