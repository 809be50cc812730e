"""Whose fault an exception is: the message's, or that of what the worker depends on."""

from __future__ import annotations

import psycopg
from kombu.exceptions import OperationalError as BrokerError
from psycopg import errors
from redis import RedisError

from wakupush.postgres.registrations import OutdatedError

#: Postgres or Redis fail, time out, or are not migrated yet. Bad values of a message raise other errors of psycopg.
INFRASTRUCTURE: tuple[type[Exception], ...] = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.InternalError,
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedFunction,
    errors.InsufficientPrivilege,
    RedisError,
    BrokerError,
)
#: Operational by psycopg's classes, but it is what a message holds that is too much.
OF_THE_MESSAGE: tuple[type[Exception], ...] = (errors.ProgramLimitExceeded, errors.StatementTooComplex)
#: Two transactions met; the batch is handled again at once.
COLLISIONS: tuple[type[Exception], ...] = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    OutdatedError,
)


def is_outage(error: Exception) -> bool:
    """Say whether an exception is no fault of the messages that were handled."""
    return isinstance(error, INFRASTRUCTURE) and not isinstance(error, OF_THE_MESSAGE)
