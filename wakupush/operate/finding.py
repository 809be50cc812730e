"""The findings of doctor about each part."""

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """The severity of a finding."""

    OK = "ok"
    #: The server runs, but something will not work as it should.
    WARNING = "warning"
    #: The server does not work.
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    level: Level
    #: The part that was checked, for example ``Redis``.
    part: str
    #: The fact, and the advice.
    text: str
