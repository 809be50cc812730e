"""Three shards at once, and a node that has no peers on one of them."""

import httpx2
import pytest
from redis import Redis

from e2e.requests_load import clients_node, doctor, metric
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import left_out
from wakupush.redis.left_out import NodeFault
from wakupush.runtime.urls import node_name
from wakupush.waku.node import WakuNode

ZERO = "/waku/2/rs/16/0"


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(nodes=2, shards=(*SHARDS, ZERO))


@pytest.fixture(scope="module")
def client_node(stack, tmp_path_factory):
    with clients_node(stack, tmp_path_factory.mktemp("node") / "log") as url, WakuNode(url) as node:
        yield node


def test_each_shard_is_answered_on_itself(stack, client_node):
    server = stack.key.public_key
    clients = {PrivateKey.generate(): shard for shard in stack.shards}
    for client, shard in clients.items():
        client_node.publish(shard, messages.register(client, server, messages.registration(client, server)))
    answered = {}

    def all_are_answered():
        for shard in stack.shards:
            replies = [open_reply(message, tuple(clients)) for message in client_node.read(shard).messages]
            answered.update({reply.recipient: shard for reply in replies if reply and reply.signer == server})
        return len(answered) == len(clients)

    wait_until(all_are_answered, timeout=60, what="an answer to each client")
    assert answered == {client.public_key: shard for client, shard in clients.items()}


def test_lonely_shard_leaves_a_node_in_use_on_others(stack, client_node):
    name, network = node_name(stack.node_urls[1]), f"{stack.node_urls[1]}/dev/network"
    httpx2.post(network, json={"lonelyShards": [ZERO]}).raise_for_status()
    client = PrivateKey.generate()

    def is_found_out():
        for shard in stack.shards:
            content = messages.registration(client, stack.key.public_key)
            client_node.publish(shard, messages.register(client, stack.key.public_key, content))
        with Redis.from_url(stack.redis_url) as redis:
            return left_out.read(redis)

    try:
        wait_until(is_found_out, timeout=120, interval=0.3, what="the node is left out")
        assert is_found_out() == {(name, ZERO): NodeFault.DEAF}
        faults = {
            shard: metric(stack.ingest_url, "wakupush_node_fault", node=name, pubsub_topic=shard)
            for shard in stack.shards
        }
        assert faults == {SHARDS[0]: 0, SHARDS[1]: 0, ZERO: 1}
        lonely = {"node": name, "pubsub_topic": ZERO}
        wait_until(
            lambda: metric(stack.ingest_url, "wakupush_node_relay_peers", **lonely) == 0, timeout=60, what="no peers"
        )
        assert metric(stack.ingest_url, "wakupush_node_relay_peers", node=name, pubsub_topic=SHARDS[0]) == 1
        findings = doctor(stack)
        assert f"it has no relay peer on the shard {ZERO}" in findings
        assert f"left out for sending on the shard {ZERO} (deaf)" in findings
    finally:
        httpx2.post(network, json={"lonelyShards": []}).raise_for_status()
