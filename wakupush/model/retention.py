"""How long rows are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, LiteralString

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A table with a partition for each day and one for everything else."""

    name: LiteralString
    #: The partition key.
    column: LiteralString
    #: The partition key's value for the start of a day.
    bound: Callable[[datetime], object]
    #: When a row came in.
    received: LiteralString


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """Which rows are deleted when."""

    #: Of the query in ``postgres/sql/maintenance.sql``.
    name: str
    #: Seconds.
    keep: float
