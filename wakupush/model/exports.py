"""How far delivery events were read for the lake."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to where events are complete."""

    #: Every transaction with a lower number has ended.
    transaction: int
    #: Which Postgres cluster counts these transactions.
    source: str
    #: Its timeline: a restore to an earlier time, and a promotion, begin another one.
    timeline: int


@dataclass(frozen=True, slots=True)
class Extent:
    """A summary of the events of a range of transactions."""

    #: On which they happened, in UTC.
    days: tuple[date, ...]
    #: The newest version of their schema.
    version: int
    rows: int
