"""What Postgres allows a login, and how long."""

from psycopg import Connection

from wakupush.postgres.named_sql import load

_SQL = load("limits")


def connections(connection: Connection) -> int:
    """Return how many connections it allows in all to logins without a right to reserved ones."""
    row = connection.execute(_SQL["connections"]).fetchone()
    return int(row[0]) if row else 0


def absent_timeouts(connection: Connection) -> list[str]:
    """Return which time-outs this session lacks."""
    return [name for (name,) in connection.execute(_SQL["absent_timeouts"])]
