"""The development Waku node with go-waku's manners, as go-waku was recorded; and go-waku itself, where it is at hand.

Tests with the fixture `client` run twice: on the development node, and on the binary that WAKUPUSH_TEST_WAKU names.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from starlette.applications import Starlette

from support import recordings
from wakupush.devnet.node.go_waku import create_app
from wakupush.devnet.node.go_waku_state import INBOX_CAPACITY, LINE_CAPACITY, GoWakuNode
from wakupush.devnet.node.state import NodeSettings
from wakupush.devnet.parts.processes import answers_http, free_port, wait_until
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash

Serve = Callable[[Starlette], httpx2.Client]

AREA = "waku-rest"
SHARD, OTHER_SHARD = "/waku/2/rs/16/32", "/waku/2/rs/16/64"
TOPIC = "/waku/1/0x1a2b3c4d/rfc26"
OTHER_TOPIC = "/waku/1/0xffffffff/rfc26"
CAPACITY = 50
BINARY = os.environ.get("WAKUPUSH_TEST_WAKU")

#: Requests to a node that has joined both shards: status, content type and body are as recorded.
AS_RECORDED = {
    *(name for name in recordings.names(AREA) if re.match("relay-(subscribe|unsubscribe|publish)", name)),
    *("relay-get-unencoded-topic", "relay-get-not-subscribed", "relay-get-after-restart", "not-found", "health"),
    "admin-post-peer-bad",
    *("store-v1-bad-time", "store-v1-digest-std", "store-v1-empty"),
    *("store-v3-11-ct", "store-v3-against-go-waku-store", "store-v3-bad-includeData", "store-v3-bad-peer"),
    *("store-v3-by-hash-hex", "store-v3-cursor-nopad", "store-v3-hash-and-topic", "store-v3-local"),
    *("store-v3-no-criteria", "store-v3-only-pubsub", "store-v3-reversed-time"),
}
#: What stands otherwise before such a request.
BEFORE = {"relay-publish-after-delete": "DELETE", "relay-unsubscribe": "POST"}
NO_PEERS = "this node never lacks peers"

COMPARED_BELOW = {
    "relay-get-one": "test_messages_read_back_as_recorded",
    "relay-get-own": "test_messages_read_back_as_recorded",
    "relay-get-many": "test_messages_read_back_as_recorded",
    "relay-get-dup": "test_messages_read_back_as_recorded",
    "relay-get-empty": "test_messages_read_back_as_recorded",
    "relay-get-after-unsubscribe": "test_unsubscribed",
    "relay-get-after-double-subscription-0": "test_second_subscription_is_a_second_queue",
    "relay-get-after-double-subscription-1": "test_second_subscription_is_a_second_queue",
    "relay-get-after-double-subscription-2": "test_second_subscription_is_a_second_queue",
    "relay-get-after-unsub-of-double": "test_second_subscription_is_a_second_queue",
    "relay-get-overflow-1": "test_full_queue_blocks_other_shards_and_the_archive",
    "relay-get-overflow-other-topic": "test_full_queue_blocks_other_shards_and_the_archive",
    "debug-info": "test_info_version_and_peers",
    "debug-version": "test_info_version_and_peers",
    "admin-peers": "test_info_version_and_peers",
    "admin-peers-B": "test_info_version_and_peers",
    "store-v1-local": "test_store_v1_pages_as_recorded",
    "store-v1-page1": "test_store_v1_pages_as_recorded",
    "store-v1-page2": "test_store_v1_pages_as_recorded",
    "store-v1-desc": "test_store_v1_pages_as_recorded",
    "store-v1-multi-ct": "test_store_v1_pages_as_recorded",
    "store-v1-remote": "test_store_v1_pages_as_recorded",
    "store-v1-no-store-no-peer": "test_store_v1_pages_as_recorded",
    "store-v1-pagesize-1000": "test_store_v1_pages_as_recorded",
    "store-v1-timestamp-window": "test_archive_takes_any_timestamp",
    "store-v3-unreachable-peer": "test_store_v3_has_no_peer",
}

NOT_APPLICABLE = {
    r"relay-publish-no-peers": NO_PEERS,
    r"auto-.*": "auto sharding is not built",
    r"filter-.*": "compared in test_devnet_light",
    r"lightpush-.*": "compared in test_devnet_light",
    r"store-v3-(by-hash|cursor-unknown|data-page.|desc|hashes-only|last-page|multi-ct|no-match|time-range)": (
        "answered by a Store v3 peer, which this node has not"
    ),
    r"light-.*": "this node has relay",
    r"_throughput-relay": "a measurement",
}


def test_every_recording_is_accounted_for() -> None:
    skipped = {name for name in recordings.names(AREA) if any(re.fullmatch(each, name) for each in NOT_APPLICABLE)}
    compared = AS_RECORDED - skipped
    assert compared | COMPARED_BELOW.keys() | skipped == recordings.names(AREA)
    assert not skipped & COMPARED_BELOW.keys()
    assert not compared & COMPARED_BELOW.keys()
    assert set(COMPARED_BELOW.values()) <= set(globals())


# --- as recorded ---


@pytest.mark.parametrize("name", sorted(AS_RECORDED - {"relay-publish-no-peers"}))
def test_answers_as_recorded(name: str, serve: Serve) -> None:
    client = serve(create_app(GoWakuNode(NodeSettings(shards=(SHARD, OTHER_SHARD), max_message_bytes=150_000))))
    recording = recordings.load(AREA, name)
    if method := BEFORE.get(name):
        client.request(method, "/relay/v1/subscriptions", json=[SHARD, OTHER_SHARD])
    answer = _send(client, recording)
    assert answer.status_code == recording.status
    assert _media_type(answer) == (recording.content_type or "").lower()
    assert answer.text == _body(recording)


def test_messages_read_back_as_recorded(serve: Serve) -> None:
    client = serve(create_app())
    _subscribe(client, SHARD)
    assert client.get(_path()).text == _body(recordings.load(AREA, "relay-get-empty"))
    groups = {
        "relay-get-one": ["relay-publish"],
        "relay-get-many": [
            *("relay-publish-minimal", "relay-publish-urlsafe", "relay-publish-nopad", "relay-publish-ts-zero"),
            *("relay-publish-ts-old", "relay-publish-ts-future", "relay-publish-rlnproof", "relay-publish-ephemeral"),
            "relay-publish-any-contenttopic",
        ],
        "relay-get-dup": ["relay-publish-dup-1", "relay-publish-dup-2"],
    }
    for recorded, published in groups.items():
        for name in published:
            assert _send(client, recordings.load(AREA, name)).text == "true"
        answer = client.get(_path())
        assert answer.text == _body(recordings.load(AREA, recorded))  # the order of the keys as well
        assert _media_type(answer) == recordings.load(AREA, recorded).content_type.lower()
    assert recordings.load(AREA, "relay-get-own").answer == recordings.load(AREA, "relay-get-one").answer


def test_info_version_and_peers(serve: Serve) -> None:
    client = serve(create_app(GoWakuNode(NodeSettings(shards=(SHARD,)))))
    assert client.get("/debug/v1/info").json().keys() == recordings.load(AREA, "debug-info").answer.keys()
    assert isinstance(client.get("/debug/v1/version").json(), str)
    (recorded,) = recordings.load(AREA, "admin-peers").answer
    (peer,) = client.get("/admin/v1/peers").json()
    assert {name: type(value) for name, value in peer.items()} == {
        name: type(value) for name, value in recorded.items()
    }
    assert peer["pubsubTopics"] == [SHARD]


@pytest.fixture
def recorded_archive(serve: Serve) -> httpx2.Client:
    """A node with every message that the recordings of Store v1 show of the first shard's archive."""
    node = GoWakuNode(NodeSettings(archive_window=None))
    node.subscribe([SHARD])
    names = ("store-v1-desc", "store-v1-pagesize-1000")
    shown = [message for name in names for message in recordings.load(AREA, name).answer["messages"]]
    for message in shown:
        node.publish(
            SHARD,
            WakuMessage(
                payload=base64.b64decode(message["payload"]),
                content_topic=message["contentTopic"],
                version=message.get("version", 0),
                timestamp=message["timestamp"],
            ),
        )
        node.read(SHARD)
    return serve(create_app(node))


@pytest.mark.parametrize("name", [name for name, test in COMPARED_BELOW.items() if test.endswith("pages_as_recorded")])
def test_store_v1_pages_as_recorded(name: str, recorded_archive: httpx2.Client) -> None:
    recording = recordings.load(AREA, name)
    answer = recorded_archive.get(recording.path)
    assert answer.status_code == recording.status
    assert _media_type(answer) == recording.content_type.lower()
    assert answer.text == _body(recording)  # cursor and digest as well


def test_archive_takes_any_timestamp(serve: Serve) -> None:
    client = serve(create_app())
    _subscribe(client, SHARD)
    recording = recordings.load(AREA, "store-v1-timestamp-window")
    for message in reversed(recording.answer["messages"]):
        client.post(_path(), json=message)
    messages = client.get(recording.path).json()["messages"]
    assert [message.get("timestamp") for message in messages] == [
        message.get("timestamp") for message in recording.answer["messages"]
    ]
    assert sorted(map(_text, messages)) == sorted(map(_text, recording.answer["messages"]))


def test_store_v3_has_no_peer(serve: Serve) -> None:
    client = serve(create_app())
    recording = recordings.load(AREA, "store-v3-unreachable-peer")
    answer = client.get(recording.path)
    assert answer.status_code == recording.status
    assert answer.json().keys() == recording.answer.keys()


# --- as go-waku answers, asked here ---


def _development_node(serve: Serve) -> httpx2.Client:
    settings = NodeSettings(
        shards=(SHARD, OTHER_SHARD), cache_capacity=CAPACITY, archive_window=None, max_message_bytes=150_000
    )
    return serve(create_app(GoWakuNode(settings)))


@contextmanager
def _go_waku(directory: Path) -> Iterator[httpx2.Client]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [
        *(BINARY, "--address=127.0.0.1", "--ext-ip=127.0.0.1", f"--tcp-port={free_port()}", "--cluster-id=16"),
        *("--nat=none", "--relay", f"--pubsub-topic={SHARD}", f"--pubsub-topic={OTHER_SHARD}"),
        *("--ip-colocation-limit=0", "--min-relay-peers-to-publish=0", "--log-level=ERROR"),
        *("--store", "--store-message-db-url=sqlite3://store.db"),
        *("--rest", "--rest-address=127.0.0.1", f"--rest-port={port}", "--rest-admin"),
        f"--rest-relay-cache-capacity={CAPACITY}",
    ]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers_http(f"{url}/debug/v1/info"), timeout=120, what="go-waku answers")
        with httpx2.Client(base_url=url, timeout=10, trust_env=False) as client:
            yield client
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["development node", pytest.param("go-waku", marks=pytest.mark.real)])
def client(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> Iterator[httpx2.Client]:
    """A node that has joined both shards, with queues of 50 messages."""
    if request.param == "development node":
        yield _development_node(serve)
        return
    if not BINARY:
        pytest.skip("WAKUPUSH_TEST_WAKU does not name a go-waku binary")
    with _go_waku(tmp_path) as client:
        yield client


TRUE = (200, "application/json; charset=utf-8", "true")


def _wrong(text: str) -> tuple[int, str, str]:
    return 400, "text/plain; charset=utf-8", text


def _type_error(given: str, field: str, go_type: str) -> tuple[int, str, str]:
    return _wrong(f"json: cannot unmarshal {given} into Go struct field RestWakuMessage.{field} of type {go_type}")


PUBLISHED = {
    "": _wrong("EOF"),
    "[]": _wrong("json: cannot unmarshal array into Go value of type rest.RestWakuMessage"),
    '"x"': _wrong("json: cannot unmarshal string into Go value of type rest.RestWakuMessage"),
    "null x": _wrong("wakumessage is missing"),
    "?": _wrong("invalid character '?' looking for beginning of value"),
    '{"payload": "AA': _wrong("unexpected EOF"),
    '{"payload": "AA=="} and more': _wrong("missing ContentTopic field"),
    '{"PAYLOAD": "AAAA", "CONTENTTOPIC": "x", "timestamp": null, "version": null, "meta": null, "x": 1}': TRUE,
    '{"payload": 1}': _type_error("number", "payload", "server.Base64URLByte"),
    '{"payload": {}}': _type_error("object", "payload", "server.Base64URLByte"),
    '{"contentTopic": 1}': _type_error("number", "contentTopic", "string"),
    '{"ephemeral": "no"}': _type_error("string", "ephemeral", "bool"),
    '{"meta": 5}': _type_error("number", "meta", "[]uint8"),
    '{"version": 4294967296}': _type_error("number 4294967296", "version", "uint32"),
    '{"version": -1}': _type_error("number -1", "version", "uint32"),
    '{"version": 1.0}': _type_error("number 1.0", "version", "uint32"),
    '{"timestamp": 9223372036854775808}': _type_error("number 9223372036854775808", "timestamp", "int64"),
    '{"timestamp": true}': _type_error("bool", "timestamp", "int64"),
    '{"payload": "AAAA", "contentTopic": " "}': TRUE,
    '{"payload": "AAAA", "contentTopic": "\\ud800"}': TRUE,
    '{"payload": "AA=A", "contentTopic": "x"}': _wrong("illegal base64 data at input byte 2"),
    '{"payload": "A", "contentTopic": "x"}': _wrong("illegal base64 data at input byte 0"),
    '{"payload": "A===", "contentTopic": "x"}': _wrong("illegal base64 data at input byte 1"),
}


def test_publishing_what_is_odd(client: httpx2.Client) -> None:
    _subscribe(client, SHARD)
    answers = {body: client.post(_path(), content=body.encode()) for body in PUBLISHED}
    assert {body: (it.status_code, _media_type(it), it.text) for body, it in answers.items()} == PUBLISHED
    assert {message["contentTopic"] for message in _read_all(client, count=3)} == {"x", " ", "\ufffd"}


def test_requests_that_are_odd(client: httpx2.Client) -> None:
    subscriptions = "/relay/v1/subscriptions"
    expected = {
        ("POST", subscriptions, "null"): 200,
        ("POST", subscriptions, '["a", 1]'): 400,
        ("POST", subscriptions, '[""]'): 200,
        ("DELETE", subscriptions, json.dumps(["never", SHARD])): 200,
        ("DELETE", subscriptions, json.dumps([OTHER_SHARD, "never"])): 500,
        ("POST", _path(), '{"payload": "AAAA", "contentTopic": "x"}'): 500,  # the node has left the shard
        ("POST", _path(), '{"payload": "AAAA"}'): 400,
        ("PUT", subscriptions, "[]"): 405,
        ("GET", "/relay/v1/messages/", ""): 404,
        ("GET", "/info", ""): 404,
        ("GET", "/version", ""): 404,
        ("GET", "/debug/v1/info/", ""): 404,
        ("POST", "/health", ""): 405,
    }
    answers = {
        (method, path, body): client.request(method, path, content=body.encode()).status_code
        for method, path, body in expected
    }
    assert answers == expected


def test_unsubscribed(client: httpx2.Client) -> None:
    recorded = recordings.load(AREA, "relay-get-after-unsubscribe")
    assert client.get(_path()).text == recorded.answer
    _subscribe(client, SHARD)
    client.request("DELETE", "/relay/v1/subscriptions", json=[SHARD])
    answer = client.get(_path())
    assert (answer.status_code, _media_type(answer), answer.text) == (
        recorded.status,
        recorded.content_type,
        recorded.answer,
    )


def test_plus_in_a_path_is_a_space(client: httpx2.Client) -> None:
    _subscribe(client, "a b")
    assert client.get("/relay/v1/messages/a+b").text == "null"
    assert client.get("/relay/v1/messages/a%20b").text == "null"
    assert client.get("/relay/v1/messages/a%2Bb").status_code == 404


def test_second_subscription_is_a_second_queue(client: httpx2.Client) -> None:
    _subscribe(client, SHARD)
    _subscribe(client, SHARD)
    for number in range(6):
        _publish(client, b"d%d" % number)
    time.sleep(0.1)  # go-waku hands out in its own time
    reads = [client.get(_path()).json() for _ in range(60)]  # one in 2**59 runs reads the same queue all the time
    payloads = [sorted(base64.b64decode(message["payload"]) for message in read) for read in reads if read]
    assert payloads == 2 * [[b"d0", b"d1", b"d2", b"d3", b"d4", b"d5"]]
    client.request("DELETE", "/relay/v1/subscriptions", json=[SHARD])
    assert client.get(_path()).status_code == recordings.load(AREA, "relay-get-after-unsub-of-double").status


def test_full_queue_blocks_other_shards_and_the_archive(client: httpx2.Client) -> None:
    _subscribe(client, SHARD, OTHER_SHARD)
    for number in range(300):
        assert _publish(client, b"f%d" % number, shard=OTHER_SHARD) == 200
    for number in range(5):
        assert _publish(client, b"s%d" % number) == 200
    time.sleep(0.3)
    assert client.get(_path()).json() == recordings.load(AREA, "relay-get-overflow-other-topic").answer
    assert len(_history(client)) == CAPACITY
    first = client.get(_path(OTHER_SHARD)).json()
    assert CAPACITY <= len(first) <= len(recordings.load(AREA, "relay-get-overflow-1").answer) == CAPACITY + 1
    rest = _read_all(client, OTHER_SHARD, count=300 - len(first))
    assert {message["payload"] for message in first + rest} == {_encoded(b"f%d" % number) for number in range(300)}
    assert len(_read_all(client, count=5)) == 5
    wait_until(lambda: len(_history(client)) == 305, timeout=60, what="everything is archived")


def test_newest_are_dropped_when_all_buffers_are_full(client: httpx2.Client) -> None:
    _subscribe(client, OTHER_SHARD)
    kept = CAPACITY + LINE_CAPACITY + INBOX_CAPACITY
    for number in range(kept + 100):
        assert _publish(client, b"%d" % number, shard=OTHER_SHARD) == 200
    time.sleep(0.3)
    read = _read_all(client, OTHER_SHARD, count=kept)
    assert {message["payload"] for message in read} == {_encoded(b"%d" % number) for number in range(kept)}
    _publish(client, b"after", shard=OTHER_SHARD)
    assert [message["payload"] for message in _read_all(client, OTHER_SHARD, count=1)] == [_encoded(b"after")]


def test_shards_have_room_of_their_own_before_the_common_line(client: httpx2.Client) -> None:
    _subscribe(client, SHARD, OTHER_SHARD)
    for number in range(CAPACITY + LINE_CAPACITY + INBOX_CAPACITY + 1):
        _publish(client, b"%d" % number, shard=OTHER_SHARD)
    for number in range(5):
        _publish(client, b"s%d" % number)
    _read_all(client, OTHER_SHARD, count=CAPACITY + LINE_CAPACITY + INBOX_CAPACITY)
    assert len(_read_all(client, count=5)) == 5


def test_subscriptions_wait_while_the_node_is_blocked(client: httpx2.Client) -> None:
    _subscribe(client, SHARD)
    for number in range(CAPACITY + 2):
        _publish(client, b"%d" % number)
    with pytest.raises(httpx2.ReadTimeout):
        client.post("/relay/v1/subscriptions", json=["later"], timeout=0.3)
    _read_all(client, count=CAPACITY + 2)
    wait_until(lambda: client.get(_path("later")).status_code == 200, timeout=60, what="the subscription is made")


def test_store_v1_walks(client: httpx2.Client) -> None:
    now = time.time_ns()
    for number in range(10):
        body = {"payload": _encoded(b"%d" % number), "contentTopic": TOPIC, "timestamp": now + number, "meta": "AAAA"}
        client.post(_path(), json={**body, "ephemeral": number == 9})
    client.post(_path(), json={"payload": "AAAA", "contentTopic": OTHER_TOPIC})
    wait_until(lambda: len(_history(client)) == 10, timeout=60, what="everything is archived")
    for ascending in ("true", "false"):
        pages = list(_pages(client, contentTopics=TOPIC, pageSize="4", ascending=ascending))
        assert [len(page) for page in pages] == [4, 4, 1]
        times = [message["timestamp"] - now for page in pages for message in page]
        assert sorted(times) == list(range(9))
        assert times[:4] == ([0, 1, 2, 3] if ascending == "true" else [5, 6, 7, 8])
        assert {key for page in pages for message in page for key in message} == {
            "payload",
            "contentTopic",
            "timestamp",
        }
    between = {"startTime": str(now + 2), "endTime": str(now + 4), "contentTopics": TOPIC}
    assert [message["timestamp"] - now for message in _history(client, **between)] == [2, 3, 4]
    assert len(_history(client, startTime=str(now))) == 10  # what has no timestamp counts by its arrival
    assert _history(client, pubsubTopic=OTHER_SHARD) == []


def test_store_v1_walk_stops_short_at_messages_without_a_timestamp(client: httpx2.Client) -> None:
    for number in range(2):
        client.post(_path(), json={"payload": _encoded(b"%d" % number), "contentTopic": TOPIC})
    wait_until(lambda: len(_history(client)) == 2, timeout=60, what="both are archived")
    client.post(_path(), json={"payload": "AAAA", "contentTopic": TOPIC, "timestamp": time.time_ns() - 10**12})
    wait_until(lambda: len(_history(client)) == 3, timeout=60, what="all are archived")
    assert [len(page) for page in _pages(client, pageSize="2")][:1] == [2]
    assert all("timestamp" not in message for page in _pages(client, pageSize="2") for message in page)


V1_REFUSED = {
    "digest=AAAA": (500, "invalid cursor"),
    "senderTime=1": (500, "invalid cursor"),
    "senderTime=x": (400, 'strconv.ParseInt: parsing "x": invalid syntax'),
    "pageSize=-1": (400, 'strconv.ParseUint: parsing "-1": invalid syntax'),
    "ascending=maybe": (400, 'strconv.ParseBool: parsing "maybe": invalid syntax'),
    "startTime=99999999999999999999": (
        400,
        'strconv.ParseInt: parsing "99999999999999999999": value out of range',
    ),
    "contentTopics=a,b,c,d,e,f,g,h,i,j,k": (500, "exceeds the maximum number of content filters allowed"),
    "contentTopics=a,,b": (500, "one or more content topics specified is empty"),
    "peerAddr=nonsense": (400, 'failed to parse multiaddr "nonsense": must begin with /'),
}


def test_store_v1_refuses(client: httpx2.Client) -> None:
    answers = {query: client.get(f"/store/v1/messages?{query}") for query in V1_REFUSED}
    found = {query: (answer.status_code, answer.json()) for query, answer in answers.items()}
    assert found == {
        query: (status, {"messages": None, "error_message": text}) for query, (status, text) in V1_REFUSED.items()
    }


V3_TOPICS = f"pubsubTopic={quote(SHARD, safe='')}&contentTopics={quote(TOPIC, safe='')}"
V3_REFUSED = {
    "": "pubsubTopic and contentTopics are required",
    f"{V3_TOPICS}&startTime=x": 'strconv.ParseInt: parsing "x": invalid syntax',
    f"{V3_TOPICS}&pageSize=x": 'strconv.ParseUint: parsing "x": invalid syntax',
    f"{V3_TOPICS}&ascending=x": 'strconv.ParseBool: parsing "x": invalid syntax',
    f"{V3_TOPICS}&cursor=AA": "illegal base64 data at input byte 0",
    "hashes=AA": "illegal base64 data at input byte 0",
}


def test_store_v3_refuses(client: httpx2.Client) -> None:
    answers = {query: client.get(f"/store/v3/messages?{query}") for query in V3_REFUSED}
    found = {query: (answer.status_code, answer.json()) for query, answer in answers.items()}
    assert found == {query: (400, {"status_code": 400, "status_desc": text}) for query, text in V3_REFUSED.items()}


def test_store_v3_never_reads_the_own_store(client: httpx2.Client) -> None:
    for query in (V3_TOPICS, f"hashes={'A' * 43}="):
        answer = client.get(f"/store/v3/messages?{query}")
        assert answer.status_code == 500
        assert answer.json()["messages"] is None
        assert answer.json()["error_message"]


# --- controls ---


def test_restart(serve: Serve) -> None:
    client = _development_node(serve)
    _subscribe(client, SHARD)
    for number in range(CAPACITY + 10):
        _publish(client, b"%d" % number)
    assert client.post("/dev/restart").status_code == 200
    assert client.get(_path()).status_code == 404
    assert len(_history(client)) == CAPACITY  # what waited is gone
    _subscribe(client, SHARD)
    _publish(client, b"after")
    assert [message["payload"] for message in client.get(_path()).json()] == [_encoded(b"after")]
    counters = client.get("/dev/counters").json()
    assert (counters["restarts"], counters["published"], counters["archived"]) == (1, CAPACITY + 11, CAPACITY + 1)


def test_log_tells_what_was_published_though_the_node_is_blocked(serve: Serve) -> None:
    client = _development_node(serve)
    _subscribe(client, SHARD)
    for number in range(CAPACITY + LINE_CAPACITY + INBOX_CAPACITY + 3):
        _publish(client, b"%d" % number, timestamp=number + 1)
    log = client.get("/dev/log").json()
    assert log["next"] == CAPACITY + LINE_CAPACITY + INBOX_CAPACITY + 3
    first = WakuMessage(payload=b"0", content_topic=TOPIC, version=0, timestamp=1)
    assert log["entries"][0]["hash"] == f"0x{message_hash(SHARD, first).hex()}"
    assert client.get("/dev/counters").json()["dropped_from_cache"] == 3


# --- helpers ---


def _send(client: httpx2.Client, recording: recordings.Recording) -> httpx2.Response:
    body = recording.body
    if size := re.fullmatch(r"relay-publish-size-(\d+)", recording.name):  # the recording holds only its beginning
        body = {"payload": _encoded(b"z" * int(size[1])), "contentTopic": TOPIC, "timestamp": time.time_ns()}
    return client.request(
        recording.method, recording.path, headers=recording.headers, content=recording.content(body) or None
    )


def _text(value: object) -> str:
    """Return a JSON value as Go writes it."""
    return json.dumps(value, separators=(",", ":"))


def _body(recording: recordings.Recording) -> str:
    """Return the recorded body as it came."""
    is_text = recording.answer == "" or (recording.content_type or "").startswith("text/")
    return str(recording.answer) if is_text else _text(recording.answer)


def _media_type(answer: httpx2.Response) -> str:
    return str(answer.headers.get("content-type", "")).lower()


def _path(shard: str = SHARD) -> str:
    return f"/relay/v1/messages/{quote(shard, safe='')}"


def _subscribe(client: httpx2.Client, *shards: str) -> None:
    assert client.post("/relay/v1/subscriptions", json=shards).text == "true"


def _publish(client: httpx2.Client, payload: bytes, *, shard: str = SHARD, timestamp: int = 0) -> int:
    body = {"payload": _encoded(payload), "contentTopic": TOPIC, "timestamp": timestamp or time.time_ns()}
    return client.post(_path(shard), json=body).status_code


def _read_all(client: httpx2.Client, shard: str = SHARD, *, count: int) -> list[dict[str, Any]]:
    """Read until so many messages have come, and once more."""
    messages: list[dict[str, Any]] = []
    wait_until(
        lambda: messages.extend(client.get(_path(shard)).json() or []) or len(messages) >= count,
        timeout=60,
        interval=0.005,
        what=f"{count} messages of {shard}",
    )
    assert client.get(_path(shard)).json() is None
    return messages


def _encoded(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


def _history(client: httpx2.Client, **parameters: str) -> list[dict[str, Any]]:
    return [message for page in _pages(client, **{"pageSize": "100", **parameters}) for message in page]


def _pages(client: httpx2.Client, **parameters: str) -> Iterator[list[dict[str, Any]]]:
    cursor: dict[str, str] = {}
    while True:
        answer = client.get("/store/v1/messages", params={**parameters, **cursor})
        assert answer.status_code == 200
        yield answer.json()["messages"] or []
        cursor = answer.json().get("cursor", {})
        if not cursor:
            return
        cursor.pop("pubsubTopic")
        cursor["digest"] = cursor["digest"].replace("+", "-").replace("/", "_")
