"""The whole server as real processes."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from support.leftovers import kept
from wakupush.client.drivers.transport import LightTransport, RelayTransport
from wakupush.devnet.demo.observer import Observer
from wakupush.devnet.demo.stack import SHARDS, Stack
from wakupush.devnet.parts.processes import Process, answers_http, free_port

#: What clients meet in `make test`: each kind of node and each transport. All other pairs are in `make test-long`.
PAIRS = {("nwaku", "relay"), ("go-waku", "light")}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        stack, transport = params.get("stack"), params.get("transport")
        other_pair = stack and transport and (stack, transport) not in PAIRS
        if other_pair or ("either" in getattr(item, "fixturenames", ()) and stack == "go-waku"):
            item.add_marker(pytest.mark.long)


@contextmanager
def running_stack(**options: object) -> Iterator[Stack]:
    """Run a stack in a directory that Postgres' user can reach, which pytest's own cannot be."""
    directory = Path(tempfile.mkdtemp(prefix="wakupush-e2e-"))
    directory.chmod(0o755)
    try:
        with Stack(directory, fsync=False, **options) as stack:
            yield stack
        # Each process has its own role, whose rights `wakupush.model.roles` says: none may lack one.
        log = stack.postgres.log.read_text(errors="replace") if stack.postgres.log.exists() else ""
        assert [line for line in log.splitlines() if "permission denied" in line] == []
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def start_stack() -> Iterator[Callable[..., Stack]]:
    """Start a stack that runs until the end of the module."""
    with ExitStack() as exit_stack:
        yield kept(lambda **options: exit_stack.enter_context(running_stack(**options)))


@pytest.fixture
def start_own_stack() -> Iterator[Callable[..., Stack]]:
    """Start a stack that runs until the end of the test."""
    with ExitStack() as exit_stack:
        yield lambda **options: exit_stack.enter_context(running_stack(**options))


# Clients of the server that a module's own `stack` is.


@pytest.fixture(scope="module")
def peer_url(stack, tmp_path_factory):
    """A relay node of the clients' own: ingest is the only reader of the server's."""
    manners = "nwaku" if answers_http(f"{stack.node_url}/health") else "go-waku"
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [
        *(sys.executable, "-m", "wakupush.devnet.serve", "waku", "--port", str(port)),
        *("--manners", manners, "--shard", SHARDS[0]),
    ]
    log = tmp_path_factory.mktemp("peer") / "log"
    with Process("peer", command, log=log, ready=lambda: answers_http(f"{url}/debug/v1/info")):
        for one, other in ((url, stack.node_url), (stack.node_url, url)):
            httpx2.post(f"{one}/dev/peers", json={"url": other}).raise_for_status()
        yield url


@pytest.fixture
def kinds(stack, peer_url):
    return {
        "relay": lambda: RelayTransport(peer_url, [SHARDS[0]]),
        "light": lambda: LightTransport(stack.node_url, [SHARDS[0]]),
    }


@pytest.fixture(params=["relay", "light"])
def transport(request, kinds):
    """Make a transport, inside an event loop: each kind on each node."""
    return kinds[request.param]


@pytest.fixture
def either(request, kinds):
    """The same, one kind on each node: for what depends on neither."""
    return kinds[{"nwaku": "relay", "go-waku": "light"}[request.node.callspec.params["stack"]]]


@pytest.fixture
def pushes(stack):
    """Return the pushes since the last call."""
    observer = Observer(stack.node_url, stack.gorush_url)
    yield observer.pushes
    observer.close()
