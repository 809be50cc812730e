"""The whole server on a node with go-waku's manners: queues, no Store v3, no health."""

import time

import httpx2
import pytest

from wakupush.devnet.demo import messages
from wakupush.devnet.demo.conversation import open_reply
from wakupush.devnet.demo.observer import Observer
from wakupush.devnet.demo.stack import SHARDS
from wakupush.devnet.parts.processes import answers_http, wait_until
from wakupush.pb.push_notification_pb2 import (
    PushNotificationQueryResponse,
    PushNotificationRegistrationResponse,
    PushNotificationResponse,
)
from wakupush.protocol import topics
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey
from wakupush.waku.codec import decode_message
from wakupush.waku.node import NodeHealth, WakuNode


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(manners="go-waku")


@pytest.fixture
def node(stack):
    with WakuNode(stack.node_url) as node:
        yield node


class Client:
    """A client that finds its answers in the node's Store v1, as light clients of go-waku do."""

    def __init__(self, stack, node):
        self.stack, self.node = stack, node
        self.server = stack.key.public_key
        self.key = PrivateKey.generate()
        self.registered = messages.registration(self.key, self.server)
        self.read = 0

    def ask(self, message, shard=SHARDS[0]):
        """Send a message and return the answer."""
        self.node.publish(shard, message)
        wait_until(lambda: len(self._replies()) > self.read, timeout=120, what="an answer")
        self.read += 1
        return self._replies()[self.read - 1]

    def register(self):
        reply = self.ask(messages.register(self.key, self.server, self.registered))
        return PushNotificationRegistrationResponse.FromString(reply.inner)

    def _replies(self):
        content_topic = topics.content_topic(topics.partitioned_topic(self.key.public_key))
        answer = httpx2.get(
            f"{self.stack.node_url}/store/v1/messages", params={"contentTopics": content_topic, "pageSize": "100"}
        )
        found = [decode_message(each) for each in answer.raise_for_status().json()["messages"] or []]
        replies = [open_reply(message, (self.key,)) for message in found]
        return [reply for reply in replies if reply and reply.signer == self.server]


def test_it_is_a_go_waku(stack, node):
    assert node.health() == NodeHealth(ready=True, state="ALIVE")
    assert httpx2.get(f"{stack.node_url}/health").status_code == 501


def test_register_query_push_and_answer(stack, node):
    alice, bob = Client(stack, node), Client(stack, node)
    observer = Observer(stack.node_url, stack.gorush_url)
    assert alice.register().success

    key_hash = alice.key.public_key.key_hash
    reply = bob.ask(messages.query(bob.key, key_hash), shard=SHARDS[1])
    [info] = PushNotificationQueryResponse.FromString(reply.inner).info
    assert info.access_token == alice.registered.access_token

    item = messages.notification(key_hash, alice.registered)
    reply = bob.ask(messages.request(bob.key, bob.server, [item]))
    assert reply.type == Type.PUSH_NOTIFICATION_RESPONSE
    assert [report.success for report in PushNotificationResponse.FromString(reply.inner).reports] == [True]
    pushes = []
    wait_until(lambda: pushes.extend(observer.pushes()) or pushes, timeout=60, what="the push")
    assert [(push.notification["tokens"], push.outcome) for push in pushes] == [
        ([alice.registered.device_token], "delivered")
    ]
    observer.close()


def test_a_restart_of_the_node_heals(stack, node):
    client = Client(stack, node)
    assert client.register().success
    httpx2.post(f"{stack.node_url}/dev/restart").raise_for_status()

    def subscribed_again():
        counted = [httpx2.get(f"{stack.node_url}/relay/v1/messages/{shard.replace('/', '%2F')}") for shard in SHARDS]
        return all(answer.status_code == 200 for answer in counted)

    wait_until(subscribed_again, timeout=120, what="ingest has subscribed to both shards again")
    wait_until(lambda: answers_http(f"{stack.ingest_url}/readyz"), timeout=120, what="ingest is ready")
    client.registered.version += 1
    assert client.register().success


def test_each_shard_has_one_queue(stack):
    """A second queue would be read at random, and block the node in the end."""
    marker = messages.to_server(PrivateKey.generate(), stack.key.public_key, Type.UNKNOWN, b"")
    time.sleep(1)  # what others sent is read by then
    with WakuNode(stack.node_url) as node:
        before = httpx2.get(f"{stack.node_url}/dev/counters").json()["read"]
        for shard in SHARDS:
            node.publish(shard, marker)
    time.sleep(1)
    assert httpx2.get(f"{stack.node_url}/dev/counters").json()["read"] - before == len(SHARDS)
