"""What faults are made of, by itself: a fault that does nothing would prove nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Thread

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from chaos.faults import _connections_used_up, _data_disk_full, _wal_disk_full
from chaos.run import open_directory
from chaos.stack import ChaosStack, Disk
from chaos.traffic import PYTHONPATH
from support.relay import Relay
from support.resolver import Resolver

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this")


@pytest.fixture
def echo() -> Iterator[Relay]:
    """Return a relay to a server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                Thread(target=_send_back, args=(connection,), daemon=True).start()

        Thread(target=serve, daemon=True).start()
        relay = Relay(server.getsockname()[1])
        yield relay
        relay.close()
        server.shutdown(socket.SHUT_RDWR)


def _send_back(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(100):
            connection.sendall(data)


def _connect(relay: Relay) -> socket.socket:
    return socket.create_connection(("127.0.0.1", relay.port), timeout=0.5)


def _ask(connection: socket.socket) -> bytes:
    connection.sendall(b"x")
    return connection.recv(100)


def test_relay_is_slow_both_ways(echo: Relay) -> None:
    with _connect(echo) as connection:
        assert _ask(connection) == b"x"
        echo.delay = 0.1
        start = time.monotonic()
        assert _ask(connection) == b"x"
        assert time.monotonic() - start >= 0.2


def test_cut_relay_ends_connections(echo: Relay) -> None:
    with _connect(echo) as connection:
        assert _ask(connection) == b"x"
        echo.cut()
        assert connection.recv(100) == b""
    with pytest.raises(ConnectionRefusedError):
        _connect(echo)
    echo.mend()
    with _connect(echo) as connection:
        assert _ask(connection) == b"x"


def test_silent_relay_tells_nobody(echo: Relay) -> None:
    with _connect(echo) as connection:
        echo.swallow()
        with pytest.raises(TimeoutError), _connect(echo) as another:
            _ask(another)
        echo.mend()
        with pytest.raises(TimeoutError):
            _ask(connection)
    with _connect(echo) as connection:
        assert _ask(connection) == b"x"


def test_clock_jumps_and_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    file.write_text("45")
    code = (
        "import time; right = time.time; from chaos import clock; clock.begin(); start = right()\n"
        "print(round(time.time() - start), round(time.time_ns() / 1e9 - start))\n"
        f"open({str(file)!r}, 'w').write('-10'); time.sleep(0.3); print(round(time.time() - start))"
    )
    variables = {**os.environ, "PYTHONPATH": PYTHONPATH, "CHAOS_CLOCK": str(file)}
    result = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    first, second, third = map(int, result.stdout.split())
    assert (first, second) == (45, 45)
    assert third in {-10, -9, -8}


@only_root
def test_full_disk_takes_no_byte(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "disk")
    try:
        (tmp_path / "disk/first").write_bytes(bytes(100_000))
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (tmp_path / "disk/second").write_bytes(bytes(100_000))
        disk.make_room()
        (tmp_path / "disk/second").write_bytes(bytes(100_000))
    finally:
        disk.unmount()


@only_root
def test_silent_name_server_names_nothing() -> None:
    resolver = Resolver()
    query = b"\0\x07\1\0\0\1\0\0\0\0\0\0\5redis\5chaos\0\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(0.5)
        client.sendto(query, (resolver.address, 53))
        assert client.recv(512).endswith(socket.inet_aton("127.0.0.1"))
        resolver.is_silent = True
        client.sendto(query, (resolver.address, 53))
        with pytest.raises(TimeoutError):
            client.recv(512)
    resolver.close()


@pytest.fixture(scope="module")
def stack() -> Iterator[ChaosStack]:
    """Return a stack of which nothing but Postgres runs."""
    with open_directory() as directory:
        stack = ChaosStack(directory)
        try:
            stack.postgres.start()
            with stack.connect() as connection:
                connection.execute("CREATE TABLE filled AS SELECT 1 AS it")
            yield stack
        finally:
            stack.stop()


@only_root
def test_tables_cannot_grow_on_a_full_disk(stack: ChaosStack) -> None:
    grow = "INSERT INTO filled SELECT generate_series(1, 10000)"
    with stack.connect() as connection:
        with _data_disk_full(stack, Random(1)), pytest.raises(psycopg.errors.DiskFull):
            connection.execute(grow)
        connection.execute(grow)


@only_root
def test_postgres_stops_without_room_for_its_log(stack: ChaosStack) -> None:
    with stack.connect() as connection:
        with _wal_disk_full(stack, Random(1)), pytest.raises(psycopg.OperationalError):
            stack.connect()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("TABLE filled")
    assert "PANIC" in stack.postgres.log.read_text()
    with stack.connect() as connection:
        connection.execute("INSERT INTO filled SELECT 2")


@only_root
def test_used_up_connections_are_given_back(stack: ChaosStack) -> None:
    with stack.connect() as connection:
        connection.execute("CREATE ROLE wakupush_exporter LOGIN")
    dsn = make_conninfo(stack.postgres_dsn, user="wakupush_exporter")
    with _connections_used_up(stack, Random(1)), pytest.raises(psycopg.OperationalError, match="connection slots"):
        psycopg.connect(dsn)
    psycopg.connect(dsn).close()
