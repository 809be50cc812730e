"""What is limited a minute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Names of what is limited.
FIRST_REGISTRATIONS: Final = "first_registrations"
REPEATS: Final = "repeats"
DEVICE_PUSHES: Final = "device_pushes"
TOPIC_QUERIES: Final = "topic_queries"


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing to be counted, and how many of its kind a minute may have."""

    name: str
    #: At least 1; who sets no limit asks for none.
    most: int
    #: Hash of the envelope (32 bytes) that it is counted for, and the position in it: it is counted once, however often
    #: a transaction is repeated.
    message: bytes
    position: int = 0
    #: Tells apart what is limited each by itself. No secret.
    key: str = ""
