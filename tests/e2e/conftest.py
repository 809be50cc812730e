"""The whole server as real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from e2e.stacks import running_node, running_stack
from support.leftovers import belonging_to_fixture
from wakupush.client.drivers.transport import LightTransport, RelayTransport
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import answers_http
from wakupush.devnet.stack import SHARDS, Stack

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


@pytest.fixture(scope="module")
def start_stack(forkserver) -> Iterator[Callable[..., Stack]]:
    """Start a stack that runs until the end of the module."""
    with ExitStack() as exit_stack:
        yield belonging_to_fixture(
            lambda **options: exit_stack.enter_context(running_stack(launcher=forkserver.fork, **options))
        )


@pytest.fixture
def start_own_stack(forkserver) -> Iterator[Callable[..., Stack]]:
    """Start a stack that runs until the end of the test."""
    with ExitStack() as exit_stack:
        yield lambda **options: exit_stack.enter_context(running_stack(launcher=forkserver.fork, **options))


# Clients of the server that a module's own `stack` is.


@pytest.fixture(scope="module")
def peer_url(stack, tmp_path_factory, forkserver):
    """A relay node of the clients' own: ingest is the only reader of the server's."""
    manners = "nwaku" if answers_http(f"{stack.node_url}/health") else "go-waku"
    with running_node(stack, manners, tmp_path_factory.mktemp("peer") / "log", forkserver) as (url, _):
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
