"""The client against a real go-waku on loopback."""

import os
import time
from contextlib import contextmanager

import pytest

from support.go_waku import OTHER_SHARD as OTHER
from support.go_waku import SHARD, TOPIC
from support.real_go_waku import BINARY, real_go_waku
from wakupush.model.waku_message import WakuMessage
from wakupush.waku.errors import NodeRefused, NodeUnreachable, NotSubscribed
from wakupush.waku.node import NodeHealth, WakuNode

if not BINARY:
    pytest.skip("WAKUPUSH_TEST_WAKU does not name a go-waku binary", allow_module_level=True)
pytestmark = pytest.mark.real


@contextmanager
def running(directory, **options):
    with real_go_waku(directory, **options) as url, WakuNode(url, timeout=3) as node:
        yield node


@pytest.fixture
def node(tmp_path):
    with running(tmp_path) as client:
        yield client


def message(**changes):
    values = {"payload": os.urandom(40), "content_topic": TOPIC, "timestamp": time.time_ns()}
    return WakuMessage(**values | changes)


def read_until(node, count, seconds=5.0):
    messages, deadline = [], time.monotonic() + seconds
    while len(messages) < count and time.monotonic() < deadline:
        batch = node.read(SHARD)
        assert batch.malformed == 0
        messages += batch.messages
        time.sleep(0.01)
    return messages


def test_published_messages_read_back_equal(node):
    published_messages = [
        message(),
        message(meta=bytes(range(64)), ephemeral=True),
        message(version=0),
        message(version=2**32 - 1),
        message(timestamp=0),
        message(timestamp=-1),
        message(timestamp=2**63 - 1),
        message(content_topic="any text: é \x00 + %2F"),
        message(payload=bytes(range(256)) * 400),
    ]
    node.subscribe([SHARD, OTHER])
    for each in published_messages:
        node.publish(SHARD, each)
    messages = read_until(node, len(published_messages))
    assert sorted(messages, key=lambda each: each.payload) == sorted(published_messages, key=lambda each: each.payload)
    assert node.read(SHARD).messages == ()
    assert node.read(OTHER).messages == ()


def test_without_a_subscription(node):
    with pytest.raises(NotSubscribed):
        node.read(SHARD)


def test_after_a_restart_of_the_node(tmp_path):
    with running(tmp_path) as node:
        node.subscribe([SHARD])
        assert node.read(SHARD).messages == ()
    with running(tmp_path) as again:
        again._subscriptions = dict(node._subscriptions)  # the same client would be closed by now
        again.subscribe([SHARD])
        with pytest.raises(NotSubscribed):
            again.read(SHARD)
        again.subscribe([SHARD])
        own_message = message()
        again.publish(SHARD, own_message)
        assert read_until(again, 1) == [own_message]


def test_a_second_client_does_not_subscribe_twice(node):
    node.subscribe([SHARD])
    with WakuNode(node.url) as second:
        second.read(SHARD)
        second.subscribe([SHARD])
        own_message = message()
        second.publish(SHARD, own_message)
        assert read_until(second, 2, seconds=0.5) == [own_message]


def test_too_large(node):
    node.subscribe([SHARD])
    node.publish(SHARD, message(payload=bytes(149_000)))
    with pytest.raises(NodeUnreachable):
        node.publish(SHARD, message(payload=bytes(150_000)))


@pytest.mark.parametrize("changes", [{"payload": b""}, {"meta": bytes(65)}, {"content_topic": ""}])
def test_refused_for_good(node, changes):
    with pytest.raises(NodeRefused) as caught:
        node.publish(SHARD, message(**changes))
    assert caught.value.status == 400
    assert caught.value.text


def test_without_peers(tmp_path):
    with running(tmp_path, least_peers=1) as node, pytest.raises(NodeUnreachable):
        node.publish(SHARD, message())


def test_info_and_health(node):
    node.check_alive()
    assert node.health() == NodeHealth(ready=True, state="ALIVE")
