"""Publishing many messages at once, to a server on loopback that answers as told."""

import json
import threading
import time
from base64 import b64decode

import pytest
from answering import hang, serving

from wakupush.model.waku_message import WakuMessage
from wakupush.waku import publisher as module
from wakupush.waku.errors import NodeBusy, NodeRefused, NodeUnreachable, NodeUnreadable
from wakupush.waku.publisher import Publisher

SHARD = "/waku/2/rs/16/32"
PATH = "/relay/v1/messages/%2Fwaku%2F2%2Frs%2F16%2F32"


def messages(count):
    return [
        (SHARD, WakuMessage(payload=b"%d" % number, content_topic="/waku/1/0x1a2b3c4d/rfc26", timestamp=7))
        for number in range(count)
    ]


@pytest.fixture
def server():
    with serving() as running:
        yield running


@pytest.fixture
def publisher(server):
    made = Publisher(server.url, timeout=5, connections=4)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(module, "MOST_WAIT", 0.01)


def published(server):
    return sorted(int(b64decode(json.loads(body)["payload"])) for *_, body in server.requests)


def test_every_message_is_published_once(server, publisher):
    assert publisher.publish(messages(50)) == [None] * 50
    assert published(server) == list(range(50))
    assert {request[:3] for request in server.requests} == {("POST", PATH, "application/json")}
    assert publisher.publish([]) == []


def test_connections_are_kept(server, publisher):
    with_connection = set()
    handle = server.get_request

    def accept():
        connection, address = handle()
        with_connection.add(address)
        return connection, address

    server.get_request = accept
    for _ in range(5):
        publisher.publish(messages(20))
    assert 0 < len(with_connection) <= 4


def test_what_is_refused_keeps_nothing_else_back(server, publisher):
    server.answers = [(200, b"")] * 3 + [(400, b"missing Payload field"), (200, b"")]
    errors = [error for error in publisher.publish(messages(10)) if error is not None]
    assert [(type(error), error.status, error.text) for error in errors] == [
        (NodeRefused, 400, "missing Payload field")
    ]
    assert published(server) == list(range(10))


def test_what_a_node_does_not_take_in_passing_is_published_again(server, publisher):
    server.answers = [(500, b"oh"), (200, b"")]
    assert publisher.publish(messages(10)) == [None] * 10
    assert set(published(server)) == set(range(10))
    assert len(server.requests) == 11


def test_a_node_that_is_gone_ends_it(server, publisher):
    server.answers = [(503, b"")]
    errors = publisher.publish(messages(100))
    assert {type(error) for error in errors} == {NodeUnreachable}
    assert len(server.requests) <= 2 * 4


def test_a_node_that_hangs_holds_up_for_as_long_as_two_requests(server):
    server.answers = [hang]
    hasty = Publisher(server.url, timeout=0.2, connections=4)
    begun = time.monotonic()
    errors = hasty.publish(messages(100))
    hasty.close()
    assert time.monotonic() - begun < 5
    assert {type(error) for error in errors} == {NodeUnreachable}


def test_a_node_that_limits_is_busy(server, publisher):
    server.answers = [(429, b"slowly")]
    assert {type(error) for error in publisher.publish(messages(2))} <= {NodeBusy, NodeUnreachable}


def test_nothing_listens():
    publisher = Publisher("http://user:password@127.0.0.1:1", timeout=1, connections=2)
    errors = publisher.publish(messages(3))
    publisher.close()
    assert {type(error) for error in errors} == {NodeUnreachable}
    assert not any("password" in str(error) for error in errors)


@pytest.mark.parametrize(
    "answer",
    [b"nonsense\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"],
    ids=["text", "none", "cut"],
)
def test_what_is_no_answer_is_unreachable(server, publisher, answer):
    server.answers = [answer]
    assert [type(error) for error in publisher.publish(messages(1))] == [NodeUnreachable]


def test_an_answer_that_does_not_end_is_cut_off(server, publisher):
    server.answers = [(200, b"x" * (module.ANSWER_LIMIT + 1))]
    assert [type(error) for error in publisher.publish(messages(1))] == [NodeUnreadable]


def test_a_redirect_is_not_followed(server, publisher):
    server.answers = [f"HTTP/1.1 301 Moved\r\nLocation: {PATH}\r\nContent-Length: 0\r\n\r\n".encode()]
    [error] = publisher.publish(messages(1))
    assert isinstance(error, NodeUnreachable)
    assert "301" in str(error)
    assert {request[0] for request in server.requests} == {"POST"}


def test_proxies_of_the_environment_are_not_used(publisher, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert publisher.publish(messages(1)) == [None]


def test_threads_share_a_publisher(server, publisher):
    results = []
    threads = [threading.Thread(target=lambda: results.extend(publisher.publish(messages(25)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [None] * 100
    assert len(server.requests) == 100


def test_what_cuts_publishing_off_leaves_nothing_under_way(server, publisher, monkeypatch):
    """A soft time limit raises wherever the process is."""
    server.answers = [hang]

    class Limit(Exception):
        pass

    def limit(*_):
        raise Limit

    with monkeypatch.context() as patch:
        patch.setattr(module, "_LOOK_SECONDS", 0.01)
        patch.setattr(module._Requests, "close", lambda self, close=module._Requests.close: closed.append(close(self)))
        patch.setattr(module, "_outcome", limit)
        closed = []
        server.answers = [(200, b"")]
        with pytest.raises(Limit):
            publisher.publish(messages(3))
        assert closed == [None]
    assert publisher.publish(messages(3)) == [None] * 3
