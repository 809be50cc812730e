"""`wakupush canary` beside a whole server: pushes of its own devices, which nobody else gets."""

import os
import signal
import subprocess
import sys
from contextlib import closing

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from e2e.stacks import running_stack
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import free_port, wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.runtime.settings import CANARY, CANARY_TOPIC

#: A push every two seconds, where the command asks for one a minute: a node takes few requests of a light client.
QUICK = """
from wakupush.canary import canary
from wakupush.cli import main

canary.MEAN_SECONDS = 2.0
canary.ARRIVAL_SECONDS = 10.0
main()
"""


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def server(port):
    with running_stack(settings={"WAKUPUSH_CANARY__GORUSH_URL": f"http://127.0.0.1:{port}"}) as stack:
        yield stack


@pytest.fixture
def observer(server):
    with closing(Observer(server.node_url, server.gorush_url)) as observer:
        yield observer


@pytest.fixture
def canary(server, port):
    environment = {**os.environ, **server.environment, "WAKUPUSH_HTTP_PORT": str(port)}
    with subprocess.Popen([sys.executable, "-c", QUICK, "canary"], env=environment) as process:
        yield process
        process.kill()


def samples(port):
    """Return the canary's figures; none before it listens."""
    try:
        text = httpx2.get(f"http://127.0.0.1:{port}/metrics").raise_for_status().text
    except httpx2.TransportError:
        return []
    families = text_string_to_metric_families(text)
    return [sample for family in families for sample in family.samples if sample.name.startswith("wakupush_canary")]


def pushes(port, outcome):
    """Return how many pushes ended so, by shard."""
    return {
        sample.labels["pubsub_topic"]: sample.value
        for sample in samples(port)
        if sample.name == "wakupush_canary_pushes_total" and sample.labels["outcome"] == outcome
    }


@pytest.mark.timeout(600)
def test_pushes_to_made_up_devices_arrive_until_they_unregister(server, observer, canary, port):
    wait_until(lambda: min(pushes(port, "arrived").values(), default=0) >= 2, timeout=120, what="pushes arrive")
    counts = {sample.labels["part"]: sample.value for sample in samples(port) if sample.name.endswith("_seconds_count")}
    assert all(counts[part] >= 2 * len(SHARDS) for part in ("query", "request", "push"))
    # The server's gorush gets none of them, and their registrations are marked.
    assert observer.pushes() == []
    with server.connect() as connection:
        [apps] = connection.execute("SELECT array_agg(DISTINCT app) FROM registrations").fetchone()
        assert apps == [CANARY]

    canary.send_signal(signal.SIGTERM)
    assert canary.wait(90) == 0
    with server.connect() as connection:
        assert connection.execute("SELECT count(*) FROM registrations WHERE registered").fetchone() == (0,)


@pytest.mark.timeout(600)
def test_a_real_device_takes_the_place_of_the_made_up_ones(server, observer, port):
    real = {"WAKUPUSH_CANARY__DEVICE_TOKEN": "a" * 64, "WAKUPUSH_CANARY__APN_TOPIC": "org.example.app"}
    environment = {**os.environ, **server.environment, "WAKUPUSH_HTTP_PORT": str(port), **real}
    with subprocess.Popen([sys.executable, "-c", QUICK, "canary"], env=environment) as process:
        wait_until(lambda: min(pushes(port, "arrived").values(), default=0) >= 1, timeout=120, what="one is accepted")
        process.terminate()
        assert process.wait(90) == 0
    notifications = [push.notification for push in observer.pushes()]
    assert notifications
    assert {tuple(one["tokens"]) for one in notifications} == {("a" * 64,)}
    assert {one["topic"] for one in notifications} == {"org.example.app"}
    assert CANARY_TOPIC not in str(notifications)
