"""How full Redis or Postgres is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Data and connections, and the most of each; 0 if there is no limit, or it is not told."""

    bytes: int
    most_bytes: int
    connections: int
    most_connections: int
