"""Publishing many messages at once, to a server on loopback that answers as told."""

import json
import threading
import time
from base64 import b64decode

import pytest

from support.answering import hang, serving
from wakupush.model.waku_message import WakuMessage
from wakupush.runtime import metrics
from wakupush.waku import publisher as module
from wakupush.waku.errors import NodeBusy, NodeRefused, NodeUnreachable, NotPublished
from wakupush.waku.publisher import Publisher

SHARD, OTHER = "/waku/2/rs/16/32", "/waku/2/rs/16/0"
LONELY = "%2F16%2F0"
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
    publisher = Publisher({"node": server.url}, timeout=5, connections=4)
    yield publisher
    publisher.close()


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


def test_transient_publish_failure_is_retried(server, publisher):
    server.answers = [(500, b"oh"), (200, b"")]
    assert publisher.publish(messages(10)) == [None] * 10
    assert set(published(server)) == set(range(10))
    assert len(server.requests) == 11


def test_a_node_that_is_gone_ends_it(server, publisher):
    server.answers = [(503, b"")]
    errors = publisher.publish(messages(100))
    assert {type(error) for error in errors} == {NodeUnreachable}
    assert len(server.requests) <= 2 * 4


def test_hanging_node_delays_by_two_requests_at_most(server):
    server.answers = [hang]
    hasty = Publisher({"node": server.url}, timeout=0.2, connections=4)
    start_time = time.monotonic()
    errors = hasty.publish(messages(100))
    hasty.close()
    assert time.monotonic() - start_time < 5
    assert {type(error) for error in errors} == {NodeUnreachable}


def test_a_node_that_limits_is_busy(server, publisher):
    server.answers = [(429, b"slowly")]
    assert {type(error) for error in publisher.publish(messages(2))} <= {NodeBusy, NodeUnreachable}


def test_nothing_listens():
    publisher = Publisher({"node": "http://user:password@127.0.0.1:1"}, timeout=1, connections=2)
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


@pytest.mark.parametrize("status", [200, 400, 502])
def test_a_page_that_does_not_end_refuses_nothing(server, publisher, status):
    server.answers = [(status, b"x" * (module.ANSWER_LIMIT + 1))]
    assert [type(error) for error in publisher.publish(messages(1))] == [NodeUnreachable]


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


def test_interrupted_publishing_leaves_no_request_open(server, publisher, monkeypatch):
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


@pytest.fixture
def two():
    """Two nodes, and a publisher on both."""
    with serving() as one, serving() as other:
        publisher = Publisher({"one": one.url, "other": other.url}, timeout=10, connections=4)
        yield one, other, publisher
        publisher.close()


def came_to(node, result):
    return metrics.PUBLICATIONS.labels(node, result)._value.get()


def test_every_message_goes_to_two_nodes(two):
    one, other, publisher = two
    assert publisher.publish(messages(50)) == [None] * 50
    assert published(one) == published(other) == list(range(50))


def test_of_three_nodes_two_are_chosen_by_chance():
    with serving() as a, serving() as b, serving() as c:
        publisher = Publisher({"a": a.url, "b": b.url, "c": c.url}, timeout=2, connections=4)
        for _ in range(30):
            assert publisher.publish(messages(1)) == [None]
        publisher.close()
        counts = [len(node.requests) for node in (a, b, c)]
    assert sum(counts) == 60
    assert min(counts) > 5


@pytest.mark.parametrize("answer", [(503, b""), (400, b"Node not subscribed to topic"), b""], ids=["503", "400", "cut"])
def test_one_that_takes_it_suffices(two, answer):
    one, other, publisher = two
    one.answers = [answer]
    assert publisher.publish(messages(20)) == [None] * 20
    assert published(other) == list(range(20))


def test_refusal_of_one_node_is_retried_on_the_other(two):
    one, other, publisher = two
    one.answers, other.answers = [(400, b"Node not subscribed to topic")], [(503, b"")]
    assert {type(error) for error in publisher.publish(messages(20))} <= {NodeUnreachable, NotPublished}


def test_what_both_refuse_is_refused(two):
    one, other, publisher = two
    one.answers = other.answers = [(400, b"missing Payload field")]
    assert {type(error) for error in publisher.publish(messages(3))} == {NodeRefused}


def test_hanging_node_delays_its_neighbour_briefly(two):
    one, other, publisher = two
    one.answers = [hang]
    late = came_to("one", "late")
    for _ in range(module.MOST_FAILURES):
        start_time = time.monotonic()
        assert publisher.publish(messages(30)) == [None] * 30
        assert time.monotonic() - start_time < 8  # a request has ten seconds
    assert came_to("one", "late") > late
    request_count = len(one.requests)
    assert publisher.publish(messages(30)) == [None] * 30
    assert len(one.requests) == request_count
    assert len(published(other)) == 30 * (module.MOST_FAILURES + 1)


def test_a_node_that_rested_is_asked_again(two, monkeypatch):
    one, _, publisher = two
    monkeypatch.setattr(module, "REST_SECONDS", 0.2)
    one.answers = [(503, b"")]
    for _ in range(module.MOST_FAILURES):
        publisher.publish(messages(1))
    one.answers = [(200, b"OK")]
    time.sleep(0.3)
    count = came_to("one", "taken")
    publisher.publish(messages(1))
    assert came_to("one", "taken") == count + 1


def test_nodes_that_all_rest_are_asked_all_the_same(two):
    one, other, publisher = two
    one.answers = other.answers = [(503, b"")]
    for _ in range(module.MOST_FAILURES):
        publisher.publish(messages(1))
    one.answers = other.answers = [(200, b"OK")]
    assert publisher.publish(messages(1)) == [None]


NO_WAY = [
    (400, b"Node not subscribed to topic"),
    (400, b"publish failed in relay: NoPeersToPublish"),
    (500, b""),
]
NODES = ["nwaku", "nwaku without peers", "go-waku"]


def only(answer):
    """Answer so on one shard; take everything else."""
    return lambda handler: answer if LONELY in handler.path else (200, b"OK")


def on_both_shards(count):
    return [(shard, message) for pair in messages(count) for shard, message in (pair, (OTHER, pair[1]))]


def shards_of(server):
    return {path.rpartition("%2F")[2] for _, path, *_ in server.requests}


@pytest.mark.parametrize("answer", NO_WAY, ids=NODES)
def test_one_dead_shard_does_not_stop_the_others(server, publisher, answer):
    server.answers = [only(answer)]
    errors = publisher.publish(on_both_shards(50))
    assert errors[::2] == [None] * 50
    assert {type(error) for error in errors[1::2]} <= {NotPublished, NodeUnreachable}
    assert NotPublished in {type(error) for error in errors[1::2]}


@pytest.mark.parametrize("answer", NO_WAY, ids=NODES)
def test_a_node_rests_on_its_dead_shard_alone(two, answer):
    one, other, publisher = two
    one.answers = [only(answer)]
    for _ in range(module.MOST_FAILURES):
        assert publisher.publish(on_both_shards(5)) == [None] * 10
    one.requests.clear()
    assert publisher.publish(on_both_shards(5)) == [None] * 10
    assert shards_of(one) == {"32"}
    assert shards_of(other) == {"32", "0"}


def test_node_is_left_out_on_one_shard_alone():
    with serving() as one, serving() as other:
        urls = {"one": one.url, "other": other.url}
        left_out = {OTHER: {"one"}, SHARD: set()}
        publisher = Publisher(urls, timeout=2, connections=4, left_out=left_out.__getitem__)
        assert publisher.publish(on_both_shards(3)) == [None] * 6
        publisher.close()
        assert (shards_of(one), shards_of(other)) == ({"32"}, {"32", "0"})


def test_success_without_peers_is_none(server):
    lonely = Publisher({"node": server.url}, timeout=2, connections=4, without_peers={OTHER: {"node"}, SHARD: ()}.get)
    errors = lonely.publish(on_both_shards(50))
    lonely.close()
    assert errors[::2] == [None] * 50
    assert {type(error) for error in errors[1::2]} <= {NotPublished, NodeUnreachable}
    assert NotPublished in {type(error) for error in errors[1::2]}
    assert len(server.requests) <= 50 + 2 * 4, "what is published in vain is bounded"


def test_node_with_peers_suffices():
    with serving() as one, serving() as other:
        urls = {"one": one.url, "other": other.url}
        publisher = Publisher(urls, timeout=2, connections=4, without_peers=lambda _shard: {"one"})
        assert publisher.publish(messages(20)) == [None] * 20
        publisher.close()
        assert published(other) == list(range(20))


@pytest.mark.parametrize(("left_out", "expected"), [({"one"}, [False, True]), ({"one", "other"}, [True, True])])
def test_left_out_node_is_only_a_last_resort(left_out, expected):
    with serving() as one, serving() as other:
        publisher = Publisher(
            {"one": one.url, "other": other.url}, timeout=2, connections=4, left_out=lambda _shard: left_out
        )
        assert publisher.publish(messages(3)) == [None] * 3
        publisher.close()
        assert [bool(node.requests) for node in (one, other)] == expected
