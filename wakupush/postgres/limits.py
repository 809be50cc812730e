"""What Postgres allows a login, for how long, and how much of it is used."""

from psycopg import Connection

from wakupush.model.use import Use
from wakupush.postgres.named_sql import load, value

_SQL = load("limits")


def connections(connection: Connection) -> int:
    """Return how many connections it allows in all to logins without a right to reserved ones."""
    return int(value(connection, _SQL["connections"]))


def use(connection: Connection) -> Use:
    """Return how full Postgres is: the connections to all databases, and the disk that this one takes.

    No table is read, and every login may ask.
    """
    row = connection.execute(_SQL["use"]).fetchone()
    count, size = row or (0, 0)
    return Use(bytes=size, most_bytes=0, connections=count, most_connections=connections(connection))


def absent_timeouts(connection: Connection) -> list[str]:
    """Return which time-outs this session lacks."""
    return [name for (name,) in connection.execute(_SQL["absent_timeouts"])]
