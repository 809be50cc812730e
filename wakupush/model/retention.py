"""How long rows are kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """Which rows are deleted when."""

    #: Name of the query in ``postgres/sql/maintenance.sql``.
    name: str
    #: Seconds.
    keep: float
