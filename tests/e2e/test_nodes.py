"""Two Waku nodes, of which one dies, goes deaf and goes mute under load: clients notice nothing."""

import time
from pathlib import Path

import httpx2
import pytest

from e2e.requests_load import Load, clients_node, doctor, metric
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.runtime.urls import node_name


@pytest.fixture(scope="module")
def stack(start_stack):
    settings = {
        "PYTHONPATH": str(Path(__file__).parent),
        "WAKUPUSH_LIMITS__PUSHES_PER_DEVICE_PER_MINUTE": "1000000",  # there is one device
    }
    return start_stack(nodes=2, ingest_module="hasty_ingest", settings=settings)


@pytest.fixture(scope="module")
def client_node(stack, tmp_path_factory):
    with clients_node(stack, tmp_path_factory.mktemp("node") / "log") as url:
        yield url


def faults(stack):
    name = node_name(stack.node_urls[1])
    return {
        reason
        for reason in ("unreachable", "deaf", "mute")
        if metric(stack.ingest_url, "wakupush_node_fault", node=name, reason=reason)
    }


@pytest.mark.long
def test_second_node_fails_under_load(stack, client_node):
    other = stack.further_nodes[0]
    network = f"{stack.node_urls[1]}/dev/network"
    with Load(stack, client_node) as load:
        wait_until(lambda: len(load.send_times) > 40 and not faults(stack), timeout=180, what="both nodes are used")
        other.kill()
        wait_until(lambda: faults(stack) == {"unreachable"}, timeout=180, what="the dead node is left out")
        other.start()
        httpx2.post(f"{stack.node_urls[1]}/dev/peers", json={"url": client_node}).raise_for_status()
        wait_until(lambda: not faults(stack), timeout=180, what="it is taken in again")
        for state, reason in (({"hears": False}, "deaf"), ({"speaks": False}, "mute")):
            httpx2.post(network, json=state).raise_for_status()
            wait_until(lambda reason=reason: faults(stack) == {reason}, timeout=180, what=f"it is found out: {reason}")
            # There is no traffic for the server on the other shard, so nothing is said about it.
            assert f"left out for sending on the shard {SHARDS[0]} ({reason})" in doctor(stack)
            httpx2.post(network, json={"hears": True, "speaks": True}).raise_for_status()
            other.restart()
            httpx2.post(f"{stack.node_urls[1]}/dev/peers", json={"url": client_node}).raise_for_status()
            wait_until(lambda: not faults(stack), timeout=120, what="it is taken in again")
        load.end()
        wait_until(load.look, timeout=200, what="every request is answered and pushed")
        time.sleep(1)
        load.look()
    assert all(load.answered.values())
    assert load.pushed == len(load.send_times)  # none twice
    took = sorted(load.took.values())
    print(f"{len(took)} answers, in s: median {took[len(took) // 2]:.3f}, longest {took[-1]:.3f}")
