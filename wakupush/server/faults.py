"""Whose fault an exception is: the message's, or that of what the worker depends on."""

from __future__ import annotations

import psycopg
from kombu.exceptions import OperationalError as BrokerError
from redis import RedisError

from wakupush.state.registrations import OutdatedError

#: Postgres or Redis fail, or are not migrated yet. Bad values of a message raise DataError or IntegrityError instead.
INFRASTRUCTURE: tuple[type[Exception], ...] = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.InternalError,
    psycopg.ProgrammingError,
    psycopg.NotSupportedError,
    RedisError,
    BrokerError,
)
#: Two transactions met; the batch is handled again at once.
COLLISIONS: tuple[type[Exception], ...] = (
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    OutdatedError,
)
