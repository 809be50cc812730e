"""The pool `rest` as a process: newcomers go through it at a low priority, and its death loses nothing."""

from pathlib import Path

import psutil
import pytest

from e2e.requests_load import Load
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.observer import Observer
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.model.queues import POOLS
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(pools=POOLS, settings={"WAKUPUSH_LIMITS__PUSHES_PER_DEVICE_PER_MINUTE": "10000"})


@pytest.fixture
def register(stack):
    """Register new users, do something, and wait until each has an answer."""
    observer = Observer(stack.node_url, stack.gorush_url)

    def register(count, meanwhile=lambda: None):
        clients = [PrivateKey.generate() for _ in range(count)]
        server = stack.key.public_key
        with WakuNode(stack.node_url) as node:
            for client in clients:
                node.publish(SHARDS[0], messages.register(client, server, messages.registration(client, server)))
        meanwhile()
        waiting = {client.public_key for client in clients}

        def everybody_is_answered():
            for arrival in observer.messages():
                if reply := open_reply(arrival.message, tuple(clients)):
                    waiting.discard(reply.recipient)
            return not waiting

        wait_until(everybody_is_answered, timeout=120, what="all are answered")

    yield register
    observer.close()


def handled(stack, kind, pools):
    """Return how many messages with this event each pool handled, by the processes that it had."""
    query = "SELECT split_part(worker, ':', 2)::int, sum(count)::int FROM delivery_history WHERE kind = %s GROUP BY 1"
    with stack.connect() as connection:
        rows = connection.execute(query, [kind]).fetchall()
    return {name: sum(count for pid, count in rows if pid in pids) for name, pids in pools.items()}


def processes(stack):
    """Return the ids of the processes of each pool."""
    return {
        name: {child.pid for child in psutil.Process(worker.pid).children()} for name, worker in stack.workers.items()
    }


def test_the_pool_yields_to_others(stack):
    worker = stack.workers["rest"]
    assert {psutil.Process(pid).nice() for pid in processes(stack)["rest"]} == {10}
    session = Path(f"/proc/{worker.pid}/autogroup")
    if session.exists():
        assert session.read_text().endswith("nice 10\n")


def test_newcomers_are_handled_apart(stack, register):
    pools = processes(stack)
    # The others look every few seconds whether the pool runs.
    wait_until(lambda: register(1) or handled(stack, "registered", pools)["rest"], timeout=60, what="the pool is seen")
    with Load(stack, stack.node_url) as load:

        def device_is_proven():
            load.look()
            return load.pushed > 80

        wait_until(device_is_proven, timeout=60, what="pushes reached the device")
        register(200)
        load.end()
        wait_until(load.look, timeout=60, what="all requests are answered, and pushed")
        assert load.pushed == len(load.send_times) == sum(load.answered.values())
    assert handled(stack, "registered", pools)["rest"] >= 200
    admitted = handled(stack, "admitted", pools)
    assert admitted["rest"] < 20 < admitted["dispatch"]


def test_messages_of_a_dead_pool_are_handled_later(stack, register):
    worker = stack.workers["rest"]
    worker.kill()
    register(20, meanwhile=worker.start)
    assert handled(stack, "registered", processes(stack))["rest"] > 0
