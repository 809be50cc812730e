"""Ending a process whose code is too old for the schema: a newer release took away what it needs."""

import os
import signal

import structlog
from psycopg import Connection

from wakupush.postgres.old_code import OutdatedCodeError, refuse_outdated

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


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
