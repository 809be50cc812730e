"""What doctor says of each part."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    #: The server runs, and something will not be as it should.
    WARNING = "warning"
    #: The server does not work.
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at."""

    level: Level
    #: What it is about, for example ``Redis``.
    part: str
    #: What is so, and what to do about it.
    text: str
