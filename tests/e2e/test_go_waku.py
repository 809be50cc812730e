"""The whole server on a node with go-waku's manners: queues, no Store v3, no health."""

import time

import httpx2
import pytest

from wakupush.devnet import messages
from wakupush.devnet.processes import answers_http, wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(manners="go-waku")


def test_a_restart_of_the_node_heals(stack):
    httpx2.post(f"{stack.node_url}/dev/restart").raise_for_status()

    def subscribed_again():
        counted = [httpx2.get(f"{stack.node_url}/relay/v1/messages/{shard.replace('/', '%2F')}") for shard in SHARDS]
        return all(answer.status_code == 200 for answer in counted)

    wait_until(subscribed_again, timeout=120, what="ingest has subscribed to both shards again")
    wait_until(lambda: answers_http(f"{stack.ingest_url}/readyz"), timeout=120, what="ingest is ready")
    client, server = PrivateKey.generate(), stack.key.public_key
    with WakuNode(stack.node_url) as node, stack.connect() as connection:
        node.publish(SHARDS[0], messages.register(client, server, messages.registration(client, server)))
        count = "SELECT count(*) FROM registrations"
        wait_until(lambda: connection.execute(count).fetchone() == (1,), timeout=120, what="the device is registered")


def read_at_rest(stack):
    """Return how many messages ingest has read, once it read none for longer than an answer waits for its repeat."""
    counts = []
    while len(counts) < 2 or counts[-1] != counts[-2]:
        time.sleep(3)
        counts.append(httpx2.get(f"{stack.node_url}/dev/counters").json()["read"])
    return counts[-1]


def test_each_shard_has_one_queue(stack):
    """A second queue would be read at random, and block the node in the end."""
    marker = messages.to_server(PrivateKey.generate(), stack.key.public_key, Type.UNKNOWN, b"")
    before = read_at_rest(stack)
    with WakuNode(stack.node_url) as node:
        for shard in SHARDS:
            node.publish(shard, marker)
    assert read_at_rest(stack) - before == len(SHARDS)
