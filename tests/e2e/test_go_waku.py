"""The whole server on a node with go-waku's manners: queues, no Store v3, no health."""

import time

import httpx2
import pytest

from wakupush.devnet import messages
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.node import WakuNode


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(manners="go-waku")


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
