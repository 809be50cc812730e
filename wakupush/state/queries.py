"""Named SQL out of the files in ``sql/``: ``-- name: NAME`` starts a query, which ends where the next one starts."""

from __future__ import annotations

import re
from importlib import resources
from typing import LiteralString

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def load(subject: str) -> dict[str, LiteralString]:
    """Return the queries of ``sql/SUBJECT.sql`` by name."""
    text = (resources.files(__package__) / "sql" / f"{subject}.sql").read_text()
    _, *parts = _NAME.split(text)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}
