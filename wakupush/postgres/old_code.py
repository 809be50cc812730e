"""Which code may run on the schema as it is. A process whose code is too old ends."""

import os
import signal

import structlog
from psycopg import Connection
from psycopg.errors import UndefinedTable

from wakupush.postgres.migrations import runner
from wakupush.postgres.named_sql import load

_SQL = load("old_code")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


class OutdatedCodeError(Exception):
    """A newer release runs, or ran, on this database: it removed something that this code needs."""


def refuse_outdated(connection: Connection) -> None:
    """Refuse to work on a schema that lacks something that this code needs.

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


def end_if_outdated(connection: Connection, main: int | None = None) -> None:
    """Ask the main process to end, as SIGTERM does, if this code may not run on the schema any more.

    Args:
        connection: new, in autocommit mode.
        main: id of the main process; this one unless given. The processes of a worker end with their parent.

    Raises:
        OutdatedCodeError: this code may not run any more.
    """
    try:
        refuse_outdated(connection)
    except OutdatedCodeError as error:
        log.critical("outdated_code", reason=str(error))
        os.kill(main or os.getpid(), signal.SIGTERM)
        raise
