"""Changes of the schema of Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of SQL."""

    #: For example ``0100_pre_initial``.
    name: str
    sql: LiteralString
    #: SHA-256 of the text, hex.
    checksum: str

    @property
    def number(self) -> int:
        """Its place in the order; a `pre` and a `post` migration of one change share it."""
        return int(self.name.split("_")[0])

    @property
    def is_post(self) -> bool:
        """Whether it takes away what code before this number needs: no such code may run any more."""
        return "_post_" in self.name
