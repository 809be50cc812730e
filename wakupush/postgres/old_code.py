"""Which code may run on the schema as it is."""

from psycopg import Connection
from psycopg.errors import UndefinedTable

from wakupush.postgres.migrations import runner
from wakupush.postgres.named_sql import load

_SQL = load("old_code")


class OutdatedCodeError(Exception):
    """A newer release removed from the schema what this code needs: it runs, or ran, on this database."""


def refuse_outdated(connection: Connection) -> None:
    """Refuse to work on a schema from which something was taken that this code needs.

    Args:
        connection: in autocommit mode.

    Raises:
        OutdatedCodeError: a `post` migration was applied that this code does not know.
    """
    try:
        row = connection.execute(_SQL["newest_post"]).fetchone()
    except UndefinedTable:
        return
    newest = row[0] if row else None
    if newest is not None and int(newest.split("_")[0]) > runner.newest():
        raise OutdatedCodeError(
            f"migration {newest} was applied, and this code knows those up to {runner.newest():04}: update wakupush"
        )
