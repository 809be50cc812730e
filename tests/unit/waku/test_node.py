"""The client against a real server on loopback that answers as told."""

import asyncio
import gzip
import json
import socket
import threading
from base64 import b64encode
from contextlib import contextmanager, suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.answering import drip, hang, serving
from wakupush.devnet.processes import wait_until
from wakupush.model.waku_message import WakuMessage
from wakupush.waku import client as client_module
from wakupush.waku.async_relay import AsyncRelay
from wakupush.waku.async_rest import AsyncRest
from wakupush.waku.codec import encode_message
from wakupush.waku.errors import AnswerTooLarge, NodeError, NodeRefused, NodeUnreachable, NodeUnreadable, NotSubscribed
from wakupush.waku.node import NodeHealth, RelayRead, WakuNode

SHARD, OTHER = "/waku/2/rs/16/32", "/waku/2/rs/16/64"
READ_PATH = "/relay/v1/messages/%2Fwaku%2F2%2Frs%2F16%2F32"
MESSAGE = WakuMessage(payload=b"hi", content_topic="/waku/1/0x1a2b3c4d/rfc26", timestamp=7)


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.fixture
def node(server):
    with WakuNode(server.url) as client:
        yield client


@pytest.fixture
def hasty(server):
    with WakuNode(server.url, timeout=0.2) as client:
        yield client


def test_subscribing(server, node):
    node.subscribe([SHARD, OTHER, SHARD])
    expected = json.dumps([SHARD, OTHER]).encode()
    assert server.requests == [("POST", "/relay/v1/subscriptions", "application/json", expected)]


def test_a_topic_is_subscribed_once(server, node):
    node.subscribe([SHARD])
    node.subscribe([SHARD])
    node.subscribe([SHARD, OTHER])
    assert [json.loads(request[3]) for request in server.requests] == [[SHARD], [OTHER]]


def test_a_restarted_node_is_subscribed_again(server, node):
    node.subscribe([SHARD, OTHER])
    server.answers = [(404, b"no subscription found for pubsubTopic"), (200, b"OK")]
    with pytest.raises(NotSubscribed):
        node.read(SHARD)
    node.subscribe([SHARD, OTHER])
    assert json.loads(server.requests[-1][3]) == [SHARD]


def test_a_topic_that_could_be_read_is_not_subscribed(server, node):
    server.answers = [(200, b"null")]
    assert node.read(SHARD) == RelayRead((), 0)
    node.subscribe([SHARD])
    assert len(server.requests) == 1


def test_lost_subscription_answer_waits_for_a_read(server, node):
    server.answers = [b"", (404, b""), (200, b"true")]
    with pytest.raises(NodeUnreachable):
        node.subscribe([SHARD])
    node.subscribe([SHARD])
    with pytest.raises(NotSubscribed):
        node.read(SHARD)
    node.subscribe([SHARD])
    assert [request[0] for request in server.requests] == ["POST", "GET", "POST"]


def test_a_late_404_does_not_undo_a_newer_subscription(server, node, monkeypatch):
    answer = node._answer

    @contextmanager
    def subscribed_meanwhile(path):
        monkeypatch.setattr(node, "_answer", answer)
        with answer(path) as late:
            node.subscribe([SHARD])
            yield late

    monkeypatch.setattr(node, "_answer", subscribed_meanwhile)
    server.answers = [(404, b""), (200, b"true")]
    with pytest.raises(NotSubscribed):
        node.read(SHARD)
    node.subscribe([SHARD])
    assert [request[0] for request in server.requests] == ["GET", "POST"]


def test_reading(server, node):
    good = {"payload": b64encode(b"hi").decode(), "contentTopic": MESSAGE.content_topic, "version": 1, "timestamp": 7}
    server.answers = [(200, json.dumps([good, {}]).encode())]
    assert node.read(SHARD) == RelayRead((MESSAGE,), 1)
    assert server.requests == [("GET", READ_PATH, None, b"")]


def test_publishing(server, node):
    node.publish(SHARD, MESSAGE)
    [(method, path, content_type, body)] = server.requests
    assert (method, path, content_type) == ("POST", READ_PATH, "application/json")
    assert json.loads(body) == encode_message(MESSAGE)


@pytest.mark.parametrize("answer", [(200, b""), (200, b"OK"), (200, b"true"), (204, b"")])
def test_success_is_the_status_alone(server, node, answer):
    server.answers = [answer]
    node.publish(SHARD, MESSAGE)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((400, b"invalid length for Meta field"), NodeRefused),
        ((413, b""), NodeRefused),
        ((400, b"Failed to publish: Node not subscribed to topic: /waku/2/rs/16/32"), NodeUnreachable),
        ((404, b"404 page not found\n"), NodeUnreachable),
        ((429, b"slow down"), NodeUnreachable),
        ((500, b""), NodeUnreachable),
        ((503, b"starting"), NodeUnreachable),
        ((302, b""), NodeUnreachable),
        (b"", NodeUnreachable),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ntr", NodeUnreachable),
        (b"SSH-2.0-not-http\r\n", NodeUnreachable),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nno", NodeUnreadable),
    ],
)
def test_every_trouble_has_a_name(server, node, answer, error):
    server.answers = [answer]
    with pytest.raises(error):
        node.publish(SHARD, MESSAGE)


def test_no_answer_in_time(server, hasty):
    server.answers = [hang]
    with pytest.raises(NodeUnreachable):
        hasty.read(SHARD)


def test_an_answer_that_trickles_is_given_up(server, hasty):
    server.answers = [drip]
    with pytest.raises(NodeUnreadable):
        hasty.read(SHARD)


def test_libcurl_does_not_repeat_a_subscription(server, node):
    server.answers = [(200, b"null"), b""]
    node.read(SHARD)
    with pytest.raises(NodeUnreachable):
        node.subscribe([OTHER])
    assert [method for method, *_ in server.requests] == ["GET", "POST"]


def test_refusal_reason_is_bounded_and_printable(server, node):
    server.answers = [(400, b"\x1b[31m no\n\xff\x00 " + b"x" * 100_000)]
    with pytest.raises(NodeRefused) as caught:
        node.publish(SHARD, MESSAGE)
    assert caught.value.status == 400
    assert caught.value.text.startswith("[31m no")
    assert caught.value.text.isprintable()
    assert len(caught.value.text) <= 200


def test_nothing_listens():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with WakuNode(f"http://127.0.0.1:{reserved.getsockname()[1]}") as client, pytest.raises(NodeUnreachable):
            client.read(SHARD)


def test_an_answer_that_does_not_end_is_cut_off(server, node, monkeypatch):
    monkeypatch.setattr(client_module, "ANSWER_LIMIT", 1000)
    server.answers = [(200, b"[" + b" " * 100_000 + b"]")]
    with pytest.raises(NodeUnreadable):
        node.read(SHARD)


def test_a_compressed_answer_is_bounded_by_its_content(server, node, monkeypatch):
    monkeypatch.setattr(client_module, "ANSWER_LIMIT", 100_000)
    for size in (90_000, 200_000):
        packed = gzip.compress(b"[" + b" " * size + b"]")
        head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
        server.answers = [head + packed]
        if size < 100_000:
            assert node.read(SHARD) == RelayRead((), 0)
        else:
            with pytest.raises(AnswerTooLarge):
                node.read(SHARD)


def test_large_answers_are_read_one_at_a_time(server, node, monkeypatch):
    monkeypatch.setattr(client_module, "LARGE_ANSWER", 1000)
    server.answers = [(200, b"[" + b" " * 100_000 + b"]"), (200, b"[]"), (200, b"[" + b" " * 100_000 + b"]")]
    results = []
    with node._answer(READ_PATH):
        assert node.read(SHARD) == RelayRead((), 0)  # a small one waits for nothing
        second = threading.Thread(target=lambda: results.append(node.read(SHARD)))
        second.start()
        wait_until(lambda: len(server.requests) == 3, timeout=60, what="the second is asked for")
        second.join(0.2)
        assert results == []
    second.join(60)
    assert results == [RelayRead((), 0)]


def test_a_payload_of_the_network_limit_is_read(server, node):
    payload = bytes(1_048_576)
    message = {"payload": b64encode(payload).decode(), "contentTopic": MESSAGE.content_topic}
    server.answers = [(200, json.dumps([message]).encode())]
    [answer] = node.read(SHARD).messages
    assert answer.payload == payload


def test_the_largest_payload_is_a_setting(server):
    message = {"payload": b64encode(bytes(200_001)).decode(), "contentTopic": MESSAGE.content_topic}
    server.answers = [(200, json.dumps([message]).encode())]
    with WakuNode(server.url, max_read_bytes=200_000) as node:
        assert node.read(SHARD) == RelayRead((), 1)


def test_a_client_may_be_used_by_many_threads(server, node):
    server.answers = [(200, b"null")]
    results = []
    threads = [threading.Thread(target=lambda: results.append(node.read(SHARD))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [RelayRead((), 0)] * 16


def test_a_node_is_known_by_its_info(server, node):
    server.answers = [(200, b'{"enrUri":"enr:-x","listenAddresses":["/ip4/127.0.0.1/tcp/1/p2p/a"]}')]
    node.check_alive()
    for body in (b"{}", b"[]", b"null", b"OK", b'{"enrUri":1,"listenAddresses":[]}'):
        server.answers = [(200, body)]
        with pytest.raises(NodeUnreadable):
            node.check_alive()


def test_health_of_nwaku(server, node):
    server.answers = [(200, b'{"nodeHealth":"READY","protocolsHealth":[{"Relay":"READY"}]}')]
    assert node.health() == NodeHealth(ready=True, state="READY")
    server.answers = [(200, b'{"nodeHealth":"NOT_READY","protocolsHealth":[]}')]
    assert node.health() == NodeHealth(ready=False, state="NOT_READY")
    server.answers = [(503, b"Node is not ready")]
    with pytest.raises(NodeUnreachable):
        node.health()
    server.answers = [(200, b"OK")]
    with pytest.raises(NodeUnreadable):
        node.health()


def test_health_of_go_waku(server, node):
    server.answers = [(501, b'"Non RLN healthcheck is not implemented"'), (200, b'{"enrUri":"e","listenAddresses":[]}')]
    assert node.health() == NodeHealth(ready=True, state="ALIVE")
    server.answers = [(501, b""), (500, b"")]
    with pytest.raises(NodeUnreachable):
        node.health()


@given(status=st.integers(200, 599), body=st.binary(max_size=100))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
def test_any_answer_is_a_value_or_a_named_error(server, node, status, body):
    server.answers = [(status, b"" if status in (204, 304) else body)]
    for call in (
        lambda: node.read(SHARD),
        lambda: node.publish(SHARD, MESSAGE),
        lambda: node.subscribe([OTHER]),
        node.check_alive,
        node.health,
    ):
        with suppress(NodeError):
            call()


@pytest.mark.parametrize("location", [READ_PATH, f"http://{'a' * 300}.example/"], ids=["path", "no host"])
def test_a_redirect_is_not_followed(server, location):
    server.answers = [f"HTTP/1.1 301 Moved\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()]

    async def publish():
        async with AsyncRest(server.url) as rest:
            await AsyncRelay(rest).publish(SHARD, MESSAGE)

    with pytest.raises(NodeUnreachable, match="301"):
        asyncio.run(publish())
    with WakuNode(server.url) as node, pytest.raises(NodeUnreachable, match="301"):
        node.publish(SHARD, MESSAGE)
    assert [method for method, *_ in server.requests] == ["POST", "POST"]


@pytest.mark.parametrize("url", ["http://a..b:8645", "http://127.0.0.1:99999"])
def test_invalid_address_is_unreachable(url):
    async def ask():
        async with AsyncRest(url) as rest:
            await rest.send("GET", "/health")

    with pytest.raises(NodeUnreachable):
        asyncio.run(ask())
