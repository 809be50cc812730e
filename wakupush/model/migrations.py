"""Changes of the schema of Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from typing import LiteralString


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of SQL."""

    #: For example ``0001_pre_initial``.
    name: str
    sql: LiteralString
    #: SHA-256 of the text, hex.
    checksum: str

    @property
    def is_post(self) -> bool:
        """Whether it runs after the new code is rolled out."""
        return "_post_" in self.name
