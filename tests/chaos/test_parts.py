"""What faults are made of, by itself: a fault that does nothing would prove nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from chaos.stack import Disk
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
