import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from wakupush.devnet.postgres import PostgresServer, temporary_postgres
from wakupush.devnet.processes import wait_until
from wakupush.runtime.connections.postgres import open_pool
from wakupush.runtime.settings import PostgresSettings


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A Postgres for a test that takes it down."""
    with temporary_postgres() as server:
        yield server


def takes_writes(pool: ConnectionPool) -> bool:
    """Say whether the pool has a connection; one that it has must take them."""
    try:
        with pool.connection() as connection:
            connection.execute("CREATE TEMPORARY TABLE written ON COMMIT DROP AS SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def test_dead_connection_is_replaced_before_use(dsn):
    pool: ConnectionPool = open_pool(PostgresSettings(dsn=dsn, pool_size=1))
    try:
        with pool.connection() as connection:
            first = connection.info.backend_pid
        with pool.connection() as connection:
            assert connection.info.backend_pid == first
        with closing(open_pool(PostgresSettings(dsn=dsn))) as another, another.connection() as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
        with pool.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert connection.info.backend_pid != first
    finally:
        pool.close()


def test_connections_that_ended_keep_nobody_waiting(own_postgres):
    with closing(open_pool(PostgresSettings(dsn=own_postgres.dsn, timeout=2.5, pool_size=4))) as pool:
        with ExitStack() as stack:
            old = {stack.enter_context(pool.connection()).info.backend_pid for _ in range(4)}
        own_postgres.stop()
        own_postgres.start()
        with pool.connection() as connection:
            assert connection.info.backend_pid not in old


def test_a_vanished_host_is_noticed_during_a_query(dsn):
    options = (socket.SO_KEEPALIVE, 1), (socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)
    with (
        closing(open_pool(PostgresSettings(dsn=dsn))) as pool,
        pool.connection() as connection,
        socket.socket(fileno=os.dup(connection.fileno())) as shared,
    ):
        for option, value in options:
            level = socket.SOL_SOCKET if option == socket.SO_KEEPALIVE else socket.IPPROTO_TCP
            assert shared.getsockopt(level, option) == value


def test_the_options_of_the_connection_string_are_kept(dsn):
    settings = PostgresSettings(dsn=f"{dsn}?options=-csearch_path%3Dmine", statement_timeout=7)
    with closing(open_pool(settings)) as pool, pool.connection() as connection:
        assert connection.execute("SHOW search_path").fetchone() == ("mine",)
        assert connection.execute("SHOW statement_timeout").fetchone() == ("7s",)


def test_reconnects_soon_after_a_long_outage(own_postgres):
    with closing(open_pool(PostgresSettings(dsn=own_postgres.dsn, timeout=1.0))) as pool:
        assert takes_writes(pool)
        own_postgres.kill()
        end = time.monotonic() + 17.0  # a pool that doubles its pauses tries after 15 s, and then after 31
        while time.monotonic() < end:
            assert not takes_writes(pool)
        own_postgres.start()
        back = time.monotonic()
        while not takes_writes(pool):
            assert time.monotonic() - back < 12


def test_read_only_postgres_counts_as_down(own_postgres):
    with (
        closing(open_pool(PostgresSettings(dsn=own_postgres.dsn, timeout=1.0, pool_size=1))) as pool,
        psycopg.connect(own_postgres.dsn, autocommit=True) as admin,
    ):
        assert takes_writes(pool)
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
        with suppress(
            psycopg.errors.ReadOnlySqlTransaction
        ):  # of an idle connection, if that statement is what tells it
            wait_until(lambda: not takes_writes(pool), timeout=60, what="a write fails")
        assert not takes_writes(pool)
        admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
        admin.execute("SELECT pg_reload_conf()")
        wait_until(lambda: takes_writes(pool), timeout=120, what="the pool connects anew")


def test_a_replica_counts_as_down_until_it_is_promoted(own_postgres):
    with psycopg.connect(own_postgres.dsn) as connection:
        data = Path(connection.execute("SHOW data_directory").fetchone()[0])
    own_postgres.stop()
    (data / "standby.signal").touch()
    own_postgres.start()
    with closing(open_pool(PostgresSettings(dsn=own_postgres.dsn, timeout=1.0))) as pool:
        assert not takes_writes(pool)
        with psycopg.connect(own_postgres.dsn, autocommit=True) as admin:
            assert admin.info.parameter_status("in_hot_standby") == "on"
            admin.execute("SELECT pg_promote()")
        wait_until(lambda: takes_writes(pool), timeout=120, what="the pool connects to it")
