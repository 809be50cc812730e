"""Which code may run on the schema as it is. A process whose code is too old ends."""

import os
import signal

import structlog
from psycopg import Connection
from psycopg.errors import UndefinedTable

from wakupush.postgres.migrations import runner
from wakupush.postgres.named_sql import load, value

_SQL = load("old_code")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


class OutdatedCodeError(Exception):
    """A newer release runs, or ran, on this database: it removed something that this code needs."""


def end_if_outdated(connection: Connection, main: int | None = None) -> None:
    """Ask the main process to end, as SIGTERM does, if the schema lacks something that this code needs.

    Args:
        connection: new, in autocommit mode.
        main: id of the main process; this one unless given. The processes of a worker end with their parent.

    Raises:
        OutdatedCodeError: a `post` migration was applied that this code does not know.
    """
    try:
        newest = value(connection, _SQL["newest_post"])
    except UndefinedTable:
        return
    if newest is not None and int(newest.split("_")[0]) > runner.newest():
        ours = f"{runner.newest():04}"
        reason = f"migration {newest} was applied, and this code knows those up to {ours}: update wakupush"
        log.critical("outdated_code", reason=reason)
        os.kill(main or os.getpid(), signal.SIGTERM)
        raise OutdatedCodeError(reason)
