"""Whether an exception is the fault of a message, or of what the worker depends on."""

from typing import Final

import psycopg
from celery.exceptions import SoftTimeLimitExceeded
from kombu.exceptions import OperationalError as BrokerError
from psycopg import errors
from redis import RedisError
from tenacity import retry, retry_if_exception, stop_after_delay, wait_random_exponential

from wakupush.postgres.registrations import OutdatedError
from wakupush.runtime.settings import STORE_SECONDS

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
#: Operational errors by psycopg's classes, but their cause is that a message holds too much.
OF_THE_MESSAGE: tuple[type[Exception], ...] = (errors.ProgramLimitExceeded, errors.StatementTooComplex)
#: Either a message costs too much, or Postgres is in trouble: handling the message alone shows which.
COSTLY: tuple[type[Exception], ...] = (
    SoftTimeLimitExceeded,
    errors.QueryCanceled,
    errors.OutOfMemory,
    errors.ConfigurationLimitExceeded,
)
#: Two transactions met; the batch is handled again at once.
COLLISIONS: tuple[type[Exception], ...] = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    OutdatedError,
)


def is_outage(error: BaseException) -> bool:
    """Return whether an exception is no fault of the handled messages, as far as the exception alone shows that."""
    return isinstance(error, (*INFRASTRUCTURE, SoftTimeLimitExceeded)) and not isinstance(error, OF_THE_MESSAGE)


def is_costly(error: Exception) -> bool:
    """Return whether a message that costs too much may have caused an exception that looks like an outage."""
    return isinstance(error, COSTLY) or is_cut(error)


def is_cut(error: Exception) -> bool:
    """Return whether a connection to Postgres ended without a word: its backend was killed, or crashed.

    If a backend is shut down, or ended because of another one's crash, Postgres says so before.
    """
    return type(error) is psycopg.OperationalError


#: Calls a function again while Postgres, Redis or the broker fails, or what it stores would be lost; the last error is
#: raised. A task that is out of time ends.
once_postgres_is_back: Final = retry(
    retry=retry_if_exception(lambda error: is_outage(error) and not isinstance(error, SoftTimeLimitExceeded)),
    wait=wait_random_exponential(multiplier=0.2, max=3),
    stop=stop_after_delay(STORE_SECONDS),
    reraise=True,
)
