"""The client against a real go-waku on loopback."""

import os
import socket
import subprocess
import time
from contextlib import contextmanager, suppress

import pytest

from wakupush.model.waku_message import WakuMessage
from wakupush.waku.errors import NodeError, NodeRefused, NodeUnreachable, NotSubscribed
from wakupush.waku.node import NodeHealth, WakuNode

BINARY = os.environ.get("WAKUPUSH_TEST_WAKU")
if not BINARY:
    pytest.skip("WAKUPUSH_TEST_WAKU does not name a go-waku binary", allow_module_level=True)
pytestmark = pytest.mark.real

SHARD, OTHER = "/waku/2/rs/16/32", "/waku/2/rs/16/64"
TOPIC = "/waku/1/0x1a2b3c4d/rfc26"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(directory, rest_port, *flags):
    command = [
        BINARY,
        "--address=127.0.0.1",
        "--ext-ip=127.0.0.1",
        f"--tcp-port={free_port()}",
        "--cluster-id=16",
        "--nat=none",
        "--relay",
        f"--pubsub-topic={SHARD}",
        f"--pubsub-topic={OTHER}",
        "--ip-colocation-limit=0",
        "--rest",
        "--rest-address=127.0.0.1",
        f"--rest-port={rest_port}",
        "--log-level=ERROR",
        *(flags or ["--min-relay-peers-to-publish=0"]),
    ]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with WakuNode(f"http://127.0.0.1:{rest_port}", timeout=3) as node:
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline:
                with suppress(NodeError):
                    node.check_alive()
                    break
                time.sleep(0.05)
            yield node
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def node(tmp_path):
    with running(tmp_path, free_port()) as client:
        yield client


def message(**changes):
    values = {"payload": os.urandom(40), "content_topic": TOPIC, "timestamp": time.time_ns()}
    return WakuMessage(**values | changes)


def read_until(node, count, seconds=5.0):
    read, deadline = [], time.monotonic() + seconds
    while len(read) < count and time.monotonic() < deadline:
        got = node.read(SHARD)
        assert got.malformed == 0
        read += got.messages
        time.sleep(0.01)
    return read


def test_published_messages_read_back_equal(node):
    published = [
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
    for each in published:
        node.publish(SHARD, each)
    read = read_until(node, len(published))
    assert sorted(read, key=lambda each: each.payload) == sorted(published, key=lambda each: each.payload)
    assert node.read(SHARD).messages == ()
    assert node.read(OTHER).messages == ()


def test_without_a_subscription(node):
    with pytest.raises(NotSubscribed):
        node.read(SHARD)


def test_after_a_restart_of_the_node(tmp_path):
    port = free_port()
    with running(tmp_path, port) as node:
        node.subscribe([SHARD])
        assert node.read(SHARD).messages == ()
    with running(tmp_path, port), WakuNode(f"http://127.0.0.1:{port}") as again:
        again._subscriptions = dict(node._subscriptions)  # the same client would be closed by now
        again.subscribe([SHARD])
        with pytest.raises(NotSubscribed):
            again.read(SHARD)
        again.subscribe([SHARD])
        sent = message()
        again.publish(SHARD, sent)
        assert read_until(again, 1) == [sent]


def test_a_second_client_does_not_subscribe_twice(node):
    node.subscribe([SHARD])
    with WakuNode(node.url) as second:
        second.read(SHARD)
        second.subscribe([SHARD])
        sent = message()
        second.publish(SHARD, sent)
        assert read_until(second, 2, seconds=0.5) == [sent]


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
    flags = ["--min-relay-peers-to-publish=1"]
    with running(tmp_path, free_port(), *flags) as node, pytest.raises(NodeUnreachable):
        node.publish(SHARD, message())


def test_info_and_health(node):
    node.check_alive()
    assert node.health() == NodeHealth(ready=True, state="ALIVE")
