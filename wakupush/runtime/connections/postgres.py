"""Connections to a Postgres that takes writes, and pools of them."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from psycopg import Connection, OperationalError, ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool

from wakupush.runtime.connections.sockets import has_input
from wakupush.runtime.settings import PostgresSettings, SettingsError

#: Seconds until TCP probes a silent connection, seconds between two probes, and their number. A host that vanished
#: sends nothing, and neither does a client that waits for its answer.
KEEPALIVES: Final[dict[str, Any]] = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
#: Parameters that Postgres 14 or newer reports unasked, at the start and with the next answer after a change.
_READ_ONLY: Final = ("in_hot_standby", "default_transaction_read_only")
#: Seconds for which a pool tries to connect, at growing intervals. Then it waits until a connection is needed, and
#: begins again. So the pool notices the end of a long outage as soon as that of a short one.
RECONNECT_SECONDS: Final = 5.0


def check_dsn(settings: PostgresSettings) -> str:
    """Return the connection string.

    Raises:
        SettingsError: it is not valid. libpq's own error text is left out: it would repeat the string and its password.
    """
    dsn = settings.dsn.get_secret_value()
    try:
        parameters = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    except ProgrammingError:
        raise SettingsError("WAKUPUSH_POSTGRES__DSN is no connection string of libpq") from None
    if _holds_bare_password(parameters):
        raise SettingsError(
            "WAKUPUSH_POSTGRES__DSN is no connection string of libpq: in a password @ is written %40, / is %2F"
        )
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


def _check(connection: Connection) -> None:
    """Check a connection that is taken out of the pool, with a round trip only if Postgres has sent something since.

    Postgres sends something to an idle connection only when it ends it. That it takes no writes, it reports before.

    Raises:
        OperationalError: the connection is closed.
    """
    if has_input(connection.fileno()):
        ConnectionPool.check_connection(connection)
    if "on" in map(connection.info.parameter_status, _READ_ONLY):
        connection.close()
        raise OperationalError("this Postgres takes no writes")


def timeouts(dsn: str, *, connect: float, statement: float) -> dict[str, Any]:
    """Return the options of a connection with which a Postgres that is locked or stuck looks like one that is down.

    Args:
        dsn: whose ``options`` are kept, except for the statement's time-out.
        connect: seconds to wait for a connection; libpq takes 2 at least.
        statement: seconds that a statement may take, and for which sent bytes may stay unacknowledged. A statement
            waits for a lock for half as long, and then fails with another error: others hold the lock, and the
            statement itself may cost little.
    """
    options = conninfo_to_dict(dsn).get("options", "")
    return {
        "connect_timeout": max(2, int(connect)),
        "tcp_user_timeout": int(1000 * statement),
        **KEEPALIVES,
        "options": f"-c lock_timeout={500 * statement:.0f} {options} -c statement_timeout={1000 * statement:.0f}",
    }


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
            with autocommit(connection):
                if look is not None:
                    look(connection)
        except BaseException:
            connection.close()  # the pool forgets it
            raise

    return ConnectionPool(
        dsn,
        min_size=1,
        max_size=settings.pool_size,
        timeout=settings.timeout,
        reconnect_timeout=RECONNECT_SECONDS,
        check=_check,
        configure=configure,
        kwargs={
            "application_name": "wakupush",
            "target_session_attrs": conninfo_to_dict(dsn).get("target_session_attrs", "read-write"),
            **timeouts(dsn, connect=settings.timeout, statement=settings.statement_timeout),
        },
        open=True,
    )
