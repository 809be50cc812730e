"""Connections to a Postgres that takes writes, and pools of them."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from psycopg import Connection, Error, OperationalError, ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

from wakupush.runtime.connections.sockets import has_input
from wakupush.runtime.settings import PostgresSettings, SettingsError

#: Seconds until TCP probes a silent connection, seconds between two probes, and their number. A host that vanished
#: sends nothing, and neither does a client that waits for its answer.
KEEPALIVES: Final[dict[str, Any]] = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
#: Parameters that Postgres reports unasked, at the start and with the next answer after a change.
_READ_ONLY: Final = ("in_hot_standby", "default_transaction_read_only")
#: For the process that a connection names: a pooler names another one than answers.
_SET_TIMEOUTS: Final = """
    SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false)
    WHERE pg_backend_pid() = %s
"""
#: Seconds for which a pool tries to connect, at growing intervals. Then it waits until a connection is needed, and
#: begins again. So the pool notices the end of a long outage as soon as that of a short one.
RECONNECT_SECONDS: Final = 5.0


def check_dsn(settings: PostgresSettings, *, direct: bool = False) -> str:
    """Return the connection string.

    Args:
        direct: whether to return the one past a pooler, if there is one.

    Raises:
        SettingsError: it is not valid. libpq's own error text is left out: it would repeat the string and its password.
    """
    name, secret = "WAKUPUSH_POSTGRES__DSN", settings.dsn
    if direct and settings.direct_dsn is not None:
        name, secret = "WAKUPUSH_POSTGRES__DIRECT_DSN", settings.direct_dsn
    dsn = secret.get_secret_value()
    try:
        values = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    except ProgrammingError:
        raise SettingsError(f"{name} is no connection string of libpq") from None
    if _holds_bare_password(values):
        raise SettingsError(f"{name} is no connection string of libpq: in a password @ is written %40, / is %2F")
    return dsn


def _holds_bare_password(parameters: Mapping[str, str]) -> bool:
    """Return whether a password holds a bare @ or /: what follows it is taken for a host, a port or a database.

    A host may begin with @: it is an abstract socket.
    """
    host, database = parameters.get("host", ""), parameters.get("dbname", "")
    return "@" in host[1:] or "@" in database or not re.fullmatch("[0-9,]*", parameters.get("port", ""))


def reason(error: OperationalError) -> str:
    """Return libpq's error text for a connection that failed: of a checked string it names all but the password."""
    return (str(error) or type(error).__name__).splitlines()[0]


def _refuse_read_only(connection: Connection) -> None:
    """Close a connection whose Postgres takes no writes, as it has reported.

    Raises:
        OperationalError: it takes none.
    """
    if "on" in map(connection.info.parameter_status, _READ_ONLY):
        connection.close()
        raise OperationalError("this Postgres takes no writes")


class _Pool(ConnectionPool):
    """A pool that hands out no connection which Postgres has ended meanwhile.

    The parameter ``check`` does that too, but it pauses after each such connection, for 1, 2, 4 and more seconds:
    a restart of Postgres that takes one second would stop a worker for fifteen.
    """

    def getconn(self, timeout: float | None = None) -> Connection:
        """Obtain a connection, with a round trip only if Postgres has sent something to it since it was returned.

        Postgres sends something to an idle connection only when it ends it. It reported before that it takes no writes.

        Args:
            timeout: seconds; by default those of the pool.

        Raises:
            PoolTimeout: there was no connection in time.
        """
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            connection = super().getconn(deadline - time.monotonic())
            try:
                if has_input(connection.fileno()):
                    self.check_connection(connection)
                _refuse_read_only(connection)
            except Error:
                # It is closed: the pool connects anew.
                self.putconn(connection)
            except BaseException:
                self.putconn(connection)
                raise
            else:
                return connection


def parameters(settings: PostgresSettings) -> dict[str, Any]:
    """Return parameters of psycopg with which a host that is gone is noticed, and a pooler gets what it can keep."""
    return {
        "connect_timeout": max(2, int(settings.timeout)),  # libpq takes 2 at least
        "tcp_user_timeout": int(1000 * settings.statement_timeout),
        "prepare_threshold": 5 if settings.prepared_statements else None,
        **KEEPALIVES,
    }


def set_timeouts(connection: Connection, settings: PostgresSettings) -> None:
    """Let a Postgres that is locked or stuck look like one that is down, on a connection of our own to it.

    A pooler would pass the session with its time-outs on to others, and refuses them in the startup parameter
    ``options``. Behind it they come from the role (`wakupush.postgres.roles`).

    A statement waits for a lock for half as long as it may take, and then fails with another error: others hold the
    lock, and the statement itself may cost little.

    Args:
        connection: in autocommit mode.
    """
    milliseconds = 1000 * settings.statement_timeout
    connection.execute(_SET_TIMEOUTS, [f"{milliseconds:.0f}", f"{milliseconds / 2:.0f}", connection.info.backend_pid])


def is_pooled(connection: Connection) -> bool:
    """Return whether a pooler is between: it names another process than the one that answers."""
    return connection.execute("SELECT pg_backend_pid()").fetchone() != (connection.info.backend_pid,)


def refuse_pooler(connection: Connection) -> None:
    """Refuse a connection through a pooler, for work that keeps something in its session, or takes long.

    Raises:
        SettingsError: a pooler is between.
    """
    if is_pooled(connection):
        raise SettingsError(
            "a pooler is between here and Postgres, which may hand this session to others: set"
            " WAKUPUSH_POSTGRES__DIRECT_DSN to a connection string of Postgres itself"
        )


@contextmanager
def autocommit(connection: Connection) -> Iterator[None]:
    """Make each statement on a connection of a pool, or each explicit block, a separate transaction."""
    connection.set_autocommit(True)
    try:
        yield
    finally:
        if not connection.closed:
            connection.set_autocommit(False)


def open_pool(settings: PostgresSettings, look: Callable[[Connection], None] | None = None) -> ConnectionPool:
    """Return an open pool of connections to a Postgres that takes writes; it connects when it can.

    A replica, and a primary that was demoted, look like one that is down. ``target_session_attrs`` of the connection
    string comes before this while connecting.

    Args:
        look: called with each new connection, in autocommit mode; if it fails, the connection is closed.
    """
    dsn = check_dsn(settings)

    def configure(connection: Connection) -> None:
        try:
            _refuse_read_only(connection)
            with autocommit(connection):
                set_timeouts(connection, settings)
                if look is not None:
                    look(connection)
        except BaseException:
            connection.close()  # the pool forgets it
            raise

    return _Pool(
        dsn,
        min_size=1,
        max_size=settings.pool_size,
        timeout=settings.timeout,
        reconnect_timeout=RECONNECT_SECONDS,
        configure=configure,
        kwargs={
            "application_name": "wakupush",
            "target_session_attrs": conninfo_to_dict(dsn).get("target_session_attrs", "read-write"),
            **parameters(settings),
        },
        open=True,
    )
