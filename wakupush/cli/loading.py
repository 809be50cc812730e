"""The start of commands: settings, logs, a connection to Postgres."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection
    from redis import Redis

    from wakupush.runtime.settings import Settings


def load(process: str) -> Settings:
    """Read the settings of a process of the server, and configure its logs."""
    from wakupush.runtime.logging import configure
    from wakupush.runtime.settings import load_settings

    settings = load_settings()
    configure(settings, process=process)
    return settings


@contextmanager
def open_postgres(*, direct: bool = False) -> Iterator[tuple[Settings, Connection]]:
    """Open a connection in autocommit mode, so that each statement is its own transaction.

    Args:
        direct: whether to go past a pooler.

    Raises:
        UsageError: the database does not answer, or not as it should.
    """
    import psycopg

    from wakupush.runtime.connections.postgres import check_dsn, parameters, reason, set_timeouts
    from wakupush.runtime.settings import load_settings

    settings = load_settings()
    postgres = settings.postgres
    dsn = check_dsn(postgres, direct=direct)
    try:
        with psycopg.connect(dsn, autocommit=True, **parameters(postgres)) as connection:
            set_timeouts(connection, postgres)
            yield settings, connection
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        raise UsageError("the database has no schema yet, or an old one: run `wakupush migrate`") from None
    except psycopg.OperationalError as error:
        raise UsageError(f"the database at WAKUPUSH_POSTGRES__DSN does not answer: {reason(error)}") from None
    except psycopg.Error as error:
        raise UsageError(
            f"the database at WAKUPUSH_POSTGRES__DSN answers with {type(error).__name__}; see `wakupush doctor`"
        ) from None


@contextmanager
def load_redis() -> Iterator[tuple[Settings, Redis]]:
    """Read the settings, and open Redis.

    Raises:
        UsageError: Redis does not answer, or refuses.
    """
    from redis import RedisError

    from wakupush.runtime.connections.redis import open_redis
    from wakupush.runtime.settings import load_settings

    settings = load_settings()
    with open_redis(settings.redis) as redis:
        try:
            yield settings, redis
        except RedisError as error:
            raise UsageError(
                f"Redis at WAKUPUSH_REDIS__URL fails ({type(error).__name__}); see `wakupush doctor`"
            ) from None
