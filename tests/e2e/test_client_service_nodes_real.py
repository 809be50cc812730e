"""A light client with two real go-wakus and their service nodes, one of which stops: answers come through the other."""

import asyncio
import time
from contextlib import ExitStack
from functools import partial

import psutil
import pytest

from e2e.clients import asked_while
from e2e.real_nodes import SERVES, WAKU, go_waku, light_flags, relay_flags, server_flags
from wakupush.client.drivers.transport import LightTransport
from wakupush.devnet.processes import answers_http, wait_until
from wakupush.devnet.stack import SHARDS, External

if not WAKU:
    pytest.skip("set WAKUPUSH_TEST_WAKU to a binary", allow_module_level=True)
pytestmark = pytest.mark.real


@pytest.fixture
def nodes(tmp_path):
    """The server's node; two service nodes, its peers; a light node of each.

    Each test has its own: the filter of a light go-waku 0.10.0 can stop after a minute or two.
    """
    with ExitStack() as exits:
        server = exits.enter_context(go_waku("server", tmp_path, *server_flags()))
        services = [
            exits.enter_context(go_waku(f"service {name}", tmp_path, *relay_flags(server), *SERVES)) for name in "ab"
        ]
        lights = [
            exits.enter_context(go_waku(f"light {name}", tmp_path, *light_flags(service)))
            for name, service in zip("ab", services, strict=True)
        ]
        yield server, services, lights


@pytest.fixture
def stack(nodes, start_own_stack):
    # All nodes run before the server subscribes: later peers would disturb a go-waku.
    started = start_own_stack(external=External(waku_url=nodes[0].url))
    wait_until(lambda: answers_http(f"{started.ingest_url}/readyz"), timeout=120, what="ingest is ready")
    time.sleep(2)  # until the nodes have made their mesh
    return started


def fall_silent(process):
    psutil.Process(process.pid).suspend()


def die(process):
    process.kill()


FAULTS = [
    pytest.param(fall_silent, "service", id="the service node falls silent"),
    pytest.param(fall_silent, "light", id="the light node falls silent"),
    pytest.param(die, "light", id="the light node dies"),
    pytest.param(die, "service", id="the service node dies"),
]


@pytest.mark.parametrize(("stop", "which"), FAULTS)
def test_answers_come_through_the_other_node(stack, nodes, stop, which):
    _, services, lights = nodes
    faulty = {"service": services, "light": lights}[which][0]

    light = LightTransport(lights[0].url, [SHARDS[0]], others=[lights[1].url])
    try:
        message_counts, took = asyncio.run(asked_while(stack, light, partial(stop, faulty), 10))
    finally:
        if stop is fall_silent:
            psutil.Process(faulty.pid).resume()
    print(f"{which}, {stop.__name__}: {', '.join(f'{seconds:.2f}' for seconds in took)} s")
    # A sender asks again after 3 s without an answer.
    assert message_counts.count(1) >= 9
