"""Three shards at once, and a node that has no peers on one of them."""

import time
from itertools import product
from statistics import median

import httpx2
import pytest
from redis import Redis

from e2e.requests_load import clients_node, doctor, metric
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import left_out
from wakupush.redis.left_out import NodeFault
from wakupush.runtime.urls import node_name
from wakupush.waku.node import WakuNode

ZERO = "/waku/2/rs/16/0"
#: Seconds for an answer: clients wait for three.
SOON = 2.0


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(nodes=2, shards=(*SHARDS, ZERO))


@pytest.fixture(scope="module")
def client_node(stack, tmp_path_factory):
    with clients_node(stack, tmp_path_factory.mktemp("node") / "log") as url, WakuNode(url) as node:
        yield node


class Client:
    """A client on one shard."""

    def __init__(self, stack, node, shard):
        self.node, self.shard = node, shard
        self.key, self.server = PrivateKey.generate(), stack.key.public_key
        self.content = messages.registration(self.key, self.server)

    def requests(self):
        """Yield what it sends, each with the type of the answer."""
        key_hash = self.key.public_key.key_hash
        yield (
            messages.register(self.key, self.server, self.content),
            Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE,
        )
        yield messages.query(self.key, key_hash), Type.PUSH_NOTIFICATION_QUERY_RESPONSE
        item = messages.notification(key_hash, self.content)
        yield messages.request(self.key, self.server, [item]), Type.PUSH_NOTIFICATION_RESPONSE


def ask_all(clients, node, shards):
    """Let all clients send their next message; return the shards and seconds of each one's answers, by client."""
    asked = {}
    for client, (message, kind) in clients.items():
        node.publish(client.shard, message)
        asked[client] = kind, time.monotonic()
    answers = {client: [] for client in clients}

    def is_answered():
        for shard in shards:
            for message, client in product(node.read(shard).messages, clients):
                reply = open_reply(message, (client.key,))
                if reply and reply.signer == client.server and reply.type == asked[client][0]:
                    answers[client].append((shard, time.monotonic() - asked[client][1]))
        return all(answers.values())

    wait_until(is_answered, timeout=60, what="an answer to each client")
    return answers


def test_each_shard_is_answered_on_itself_within_2_s(stack, client_node):
    streams = {client: client.requests() for client in (Client(stack, client_node, shard) for shard in stack.shards)}
    took = {shard: [] for shard in stack.shards}
    for _ in range(3):
        answers = ask_all({client: next(stream) for client, stream in streams.items()}, client_node, stack.shards)
        for client, ((shard, seconds), *_) in answers.items():
            assert shard == client.shard
            took[shard].append(seconds)
    print({shard: [round(each, 2) for each in times] for shard, times in took.items()})
    # The first messages of all find processes that have just started, on a machine that may be busy.
    assert {shard: median(times) < SOON for shard, times in took.items()} == dict.fromkeys(stack.shards, True)


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
