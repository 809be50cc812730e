"""The development Waku node: as go-waku was recorded where nwaku has the same manners, else as the table says.

The table is that of docs/reference/contracts/waku-rest.md, section 6.
"""

from __future__ import annotations

import base64
import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
import pytest

from support import recordings
from wakupush.devnet.node import go_waku
from wakupush.devnet.node.nwaku import create_app
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings, encoded_size
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.applications import Starlette

    Serve = Callable[[Starlette], httpx2.Client]

AREA = "waku-rest"
SHARD, OTHER_SHARD = "/waku/2/rs/16/32", "/waku/2/rs/16/64"
TOPIC = "/waku/1/0x1a2b3c4d/rfc26"
OTHER_TOPIC = "/waku/1/0xffffffff/rfc26"

SAME = "as recorded"


@dataclass(frozen=True)
class Expect:
    """What the node answers to a recorded request; ``text`` is a part of the body."""

    status: int
    text: str
    why: str


OK = Expect(200, "OK", "success body is OK")
REFUSED = Expect(400, "", SAME)
NO_ROUTE = Expect(400, "Invalid path or method used.", "unknown path is 400")
NOT_BASE64 = Expect(400, "base64", "base64 in: standard, padded only")

# Requests to a node that is subscribed to both shards, as the recording's nodes were.
RELAY = {
    "relay-subscribe": OK,
    "relay-subscribe-B": OK,
    "relay-subscribe-again": OK,
    "relay-subscribe-twice": OK,
    "relay-subscribe-empty-array": OK,
    "relay-subscribe-foreign-cluster": OK,
    "relay-subscribe-nonsense": Expect(400, 'Invalid pubsub topic(s): @["nonsense"]', "invalid pubsub topic is 400"),
    "relay-subscribe-bad-json": REFUSED,
    "relay-subscribe-object": REFUSED,
    "relay-unsubscribe": OK,
    "relay-unsubscribe-bad-json": REFUSED,
    "relay-unsubscribe-not-subscribed": Expect(200, "OK", "not in the table: a no-op in nwaku"),
    "relay-publish": OK,
    "relay-publish-any-contenttopic": OK,
    "relay-publish-bad-b64": NOT_BASE64,
    "relay-publish-bad-json": REFUSED,
    "relay-publish-dup-1": OK,
    "relay-publish-dup-2": OK,
    "relay-publish-empty-payload": Expect(400, "payload", SAME),
    "relay-publish-ephemeral": OK,
    "relay-publish-meta-65": Expect(400, "meta", SAME),
    "relay-publish-meta-nopad": NOT_BASE64,
    "relay-publish-meta-urlsafe": NOT_BASE64,
    "relay-publish-minimal": OK,
    "relay-publish-missing-contenttopic": Expect(400, "contentTopic", SAME),
    "relay-publish-missing-payload": Expect(400, "payload", SAME),
    "relay-publish-mixed-b64": NOT_BASE64,
    "relay-publish-no-peers": Expect(200, "OK", "with no peers static publish still says OK"),
    "relay-publish-nopad": NOT_BASE64,
    "relay-publish-null": REFUSED,
    "relay-publish-rlnproof": OK,
    "relay-publish-size-100000": OK,
    "relay-publish-size-149000": OK,
    "relay-publish-size-150000": Expect(200, "OK", "max size is 153 600 bytes"),
    "relay-publish-size-160000": Expect(400, "Failed to publish: ", "publish errors: validation text"),
    "relay-publish-size-1000000": Expect(400, "Failed to publish: ", "publish errors: validation text"),
    "relay-publish-ts-float": Expect(400, "timestamp", SAME),
    "relay-publish-ts-future": OK,
    "relay-publish-ts-old": OK,
    "relay-publish-ts-string": Expect(400, "timestamp", SAME),
    "relay-publish-ts-zero": OK,
    "relay-publish-unencoded-topic": NO_ROUTE,
    "relay-publish-unsubscribed-topic": Expect(
        400, "Failed to publish: Node not subscribed to topic: /waku/2/rs/16/99", "publish errors"
    ),
    "relay-publish-unsubscribed-topic-B": Expect(400, "Node not subscribed to topic", "publish errors"),
    "relay-publish-urlsafe": NOT_BASE64,
    "relay-publish-version-string": Expect(400, "version", SAME),
    "relay-get-empty": Expect(200, "[]", "GET empty is []"),
    "relay-get-unencoded-topic": NO_ROUTE,
    "not-found": NO_ROUTE,
}

# Store v3 requests to an archive with the recording's messages: the status, and the answer if that is not an error.
STORE_SAME = (
    "store-v3-by-hash",
    "store-v3-data-page1",
    "store-v3-data-page2",
    "store-v3-desc",
    "store-v3-hashes-only",
    "store-v3-last-page",
    "store-v3-multi-ct",
    "store-v3-no-match",
    "store-v3-time-range",
    "store-v3-11-ct",
    "store-v3-bad-includeData",
    "store-v3-cursor-unknown",
)
STORE_DIFFERS = {
    "store-v3-against-go-waku-store": "own store = local query; this node has no other",
    "store-v3-bad-peer": "own store = local query; this node has no other",
    "store-v3-by-hash-hex": "hashes are 0x-hex",
    "store-v3-hash-and-topic": "criteria are not limited",
    "store-v3-local": "own store = local query",
    "store-v3-no-criteria": "no criteria required",
    "store-v3-only-pubsub": "no criteria required",
    "store-v3-reversed-time": "criteria are not limited: nothing is found",
    "store-v3-unreachable-peer": "own store = local query; this node has no other",
}

COMPARED_BELOW = {
    "relay-get-one": "test_reads_what_was_published",
    "relay-get-own": "test_reads_what_was_published",
    "relay-get-dup": "test_equal_messages_are_delivered_once",
    "relay-get-not-subscribed": "test_unsubscribed_topic_is_404",
    "relay-get-after-restart": "test_restart",
    "relay-get-after-unsubscribe": "test_unsubscribed_topic_is_404",
    "relay-publish-after-delete": "test_unsubscribed_topic_is_404",
    "relay-get-after-double-subscription-0": "test_repeated_subscription_is_a_no_op",
    "relay-get-after-double-subscription-1": "test_repeated_subscription_is_a_no_op",
    "relay-get-after-double-subscription-2": "test_repeated_subscription_is_a_no_op",
    "relay-get-after-unsub-of-double": "test_repeated_subscription_is_a_no_op",
    "relay-get-many": "test_optional_fields_when_read_back",
    "relay-get-overflow-1": "test_full_cache_drops_the_oldest_sender_timestamp",
    "relay-get-overflow-other-topic": "test_full_cache_drops_the_oldest_sender_timestamp",
    "debug-info": "test_info_version_health_and_peers",
    "debug-version": "test_info_version_health_and_peers",
    "health": "test_info_version_health_and_peers",
    "admin-peers": "test_info_version_health_and_peers",
    "admin-peers-B": "test_info_version_health_and_peers",
}

NOT_APPLICABLE = {
    r"auto-.*": "auto sharding is not built",
    r"filter-.*": "go-waku's: test_devnet_light",
    r"lightpush-.*": "go-waku's: test_devnet_light",
    r"store-v1-.*": "go-waku's alone: test_devnet_go_waku",
    r"store-v3-cursor-nopad": "the cursor is hex in nwaku",
    r"admin-post-peer-bad": "peers cannot be added",
    r"light-.*": "this node has relay",
    r"_throughput-relay": "a measurement",
}


def test_every_recording_is_accounted_for() -> None:
    compared = {*RELAY, *STORE_SAME, *STORE_DIFFERS, *COMPARED_BELOW}
    rest = recordings.names(AREA) - compared
    assert compared <= recordings.names(AREA)
    assert [name for name in rest if not any(re.fullmatch(pattern, name) for pattern in NOT_APPLICABLE)] == []
    assert set(COMPARED_BELOW.values()) <= set(globals())


@pytest.mark.parametrize("name", sorted(RELAY))
def test_relay_as_expected(name: str, serve: Serve) -> None:
    client = serve(create_app(DevelopmentNode(NodeSettings(shards=(SHARD, OTHER_SHARD)))))
    recording, expected = recordings.load(AREA, name), RELAY[name]
    answer = _send(client, recording)
    assert answer.status_code == expected.status
    assert expected.text in answer.text
    if expected.why == SAME:
        assert answer.status_code == recording.status
    if expected is OK:
        assert recording.status == 200
        assert answer.text == "OK"
        assert answer.headers["content-type"].startswith("text/plain")


def _send(client: httpx2.Client, recording: recordings.Recording) -> httpx2.Response:
    body = recording.body
    if size := re.fullmatch(r"relay-publish-size-(\d+)", recording.name):  # the recording holds only its beginning
        body = _body(b"z" * int(size[1]))
    return client.request(
        recording.method, recording.path, headers=recording.headers, content=recording.content(body) or None
    )


def test_reads_what_was_published(serve: Serve) -> None:
    client = _subscribed(serve)
    _send(client, recordings.load(AREA, "relay-publish"))
    expected = [{**message, "proof": ""} for message in recordings.load(AREA, "relay-get-one").answer]
    answer = client.get(_path())
    assert answer.json() == expected
    assert list(answer.json()[0]) == ["payload", "contentTopic", "version", "timestamp", "meta", "ephemeral", "proof"]
    assert answer.headers["content-type"] == "application/json"
    assert client.get(_path()).json() == []


def test_optional_fields_when_read_back(serve: Serve) -> None:
    client = _subscribed(serve)
    before = time.time_ns()
    _send(client, recordings.load(AREA, "relay-publish-minimal"))
    _send(client, recordings.load(AREA, "relay-publish-ts-zero"))
    for message in client.get(_path()).json():
        assert before <= message.pop("timestamp") <= time.time_ns()
        assert message.keys() == {"payload", "contentTopic", "version", "ephemeral", "proof"}
        assert (message["version"], message["ephemeral"]) == (0, False)


def test_equal_messages_are_delivered_once(serve: Serve) -> None:
    client = _subscribed(serve)
    for name in ("relay-publish-dup-1", "relay-publish-dup-2"):
        _send(client, recordings.load(AREA, name))
    recorded = recordings.load(AREA, "relay-get-dup").answer
    assert client.get(_path()).json() == [{**it, "version": 0, "ephemeral": False, "proof": ""} for it in recorded]
    _send(client, recordings.load(AREA, "relay-publish-dup-1"))
    assert client.get(_path()).json() == []
    assert client.get("/dev/counters").json()["duplicates"] == 2
    assert client.get("/dev/log").json()["next"] == 1


def test_unsubscribed_topic_is_404(serve: Serve) -> None:
    client = serve(create_app())
    answer = client.get(_path())
    assert (answer.status_code, answer.content) == (404, b"")
    _subscribe(client, SHARD)
    _publish(client, b"unread")
    client.request("DELETE", "/relay/v1/subscriptions", json=[SHARD])
    assert client.get(_path()).status_code == 404
    assert _publish(client, b"x").status_code == 400
    _subscribe(client, SHARD)
    assert client.get(_path()).json() == []


def test_repeated_subscription_is_a_no_op(serve: Serve) -> None:
    client = _subscribed(serve)
    _publish(client, b"1")
    _subscribe(client, SHARD)
    _publish(client, b"2")
    assert _payloads(client) == [b"1", b"2"]
    assert _payloads(client) == []
    client.request("DELETE", "/relay/v1/subscriptions", json=[SHARD])
    assert client.get(_path()).status_code == 404


def test_full_cache_drops_the_oldest_sender_timestamp(serve: Serve) -> None:
    client = serve(create_app(DevelopmentNode(NodeSettings(shards=(SHARD, OTHER_SHARD), cache_capacity=3))))
    now = time.time_ns()
    _publish(client, b"other", shard=OTHER_SHARD, timestamp=now + 1)
    for age in (30, 10, 20):
        _publish(client, b"%d" % age, timestamp=now - age)
    _publish(client, b"5", timestamp=now - 5)
    assert _payloads(client) == [b"10", b"5"]
    assert _payloads(client, OTHER_SHARD) == [b"other"]
    assert client.get("/dev/counters").json()["dropped_from_cache"] == 2
    for number in range(3):
        _publish(client, b"again %d" % number)
    assert len(_payloads(client)) == 3


def test_restart(serve: Serve) -> None:
    client = serve(create_app(DevelopmentNode(NodeSettings(shards=(OTHER_SHARD,)))))
    _subscribe(client, SHARD)
    _publish(client, b"unread")
    _publish(client, b"unread", shard=OTHER_SHARD)
    assert client.post("/dev/restart").status_code == 200
    assert client.get(_path()).status_code == 404
    assert client.get(_path(OTHER_SHARD)).json() == []
    assert len(_store(client)["messages"]) == 2
    assert client.get("/dev/log").json()["next"] == 2


@pytest.mark.parametrize("create", [create_app, go_waku.create_app], ids=["nwaku", "go-waku"])
def test_messages_that_peers_relay(create: Callable[[], Starlette], serve: Serve) -> None:
    client = serve(create())
    assert client.post("/relay/v1/subscriptions", json=[SHARD]).status_code == 200
    messages = [{"payload": base64.b64encode(text).decode(), "contentTopic": TOPIC} for text in (b"one", b"two")]
    assert client.post("/dev/messages", json={"pubsubTopic": SHARD, "messages": messages}).status_code == 200
    assert _payloads(client) == [b"one", b"two"]
    for wrong in ({"pubsubTopic": SHARD}, {"pubsubTopic": SHARD, "messages": [{}]}, []):
        assert client.post("/dev/messages", json=wrong).status_code == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json"}, 200),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Content-Type": "text/plain"}, 200),
        ({"Content-Type": "application/octet-stream"}, 400),
        ({}, 400),
    ],
)
def test_content_type(headers: dict[str, str], status: int, serve: Serve) -> None:
    client = _subscribed(serve)
    assert client.post("/relay/v1/subscriptions", headers=headers, content=b"[]").status_code == status
    body = b'{"payload": "AAAA", "contentTopic": "/a/1/b/c"}'
    assert client.post(_path(), headers=headers, content=body).status_code == status


@pytest.mark.parametrize(
    "change",
    [
        {"timestamp": 2**63},
        {"timestamp": True},
        {"version": -1},
        {"version": 2**32},
        {"ephemeral": 1},
        {"contentTopic": " "},
        {"contentTopic": "\ud800"},
        {"payload": None},
    ],
)
def test_impossible_values_are_400(change: dict[str, Any], serve: Serve) -> None:
    client = _subscribed(serve)
    body = json.dumps({**_body(b"x"), **change})
    assert client.post(_path(), headers={"Content-Type": "application/json"}, content=body).status_code == 400
    assert client.get(_path()).json() == []


@pytest.mark.parametrize("size", [(153_600, 200), (153_601, 400)])
def test_size_limit_is_of_the_protobuf(size: tuple[int, int], serve: Serve) -> None:
    client = _subscribed(serve)
    wanted, status = size
    payload = b"z" * (wanted - encoded_size(_message(b"z" * 150_000)) + 150_000)
    assert encoded_size(_message(payload)) == wanted
    assert _publish(client, payload, timestamp=_message(b"").timestamp).status_code == status


def test_encoded_size() -> None:
    # payload, content topic, version, timestamp (zigzag 300 in two bytes), meta, ephemeral (tag of two bytes)
    message = WakuMessage(payload=b"ab", content_topic="abc", timestamp=150, meta=b"m", ephemeral=True)
    assert encoded_size(message) == 4 + 5 + 2 + 3 + 3 + 3
    assert encoded_size(WakuMessage(payload=b"", content_topic="", version=0, timestamp=-(2**63))) == 11


def test_info_version_health_and_peers(serve: Serve) -> None:
    client = _subscribed(serve)
    recorded = recordings.load(AREA, "debug-info").answer
    for path in ("/info", "/debug/v1/info"):
        assert client.get(path).json().keys() == recorded.keys()
    for path in ("/version", "/debug/v1/version"):
        assert client.get(path).headers["content-type"].startswith("text/plain")
    assert client.get("/health").json() == {
        "nodeHealth": "READY",
        "protocolsHealth": [{"Relay": "READY"}, {"Store": "READY"}],
    }
    (peer,) = client.get("/admin/v1/peers").json()
    assert peer.keys() == {"multiaddr", "protocols", "shards", "connected", "agent", "origin", "score"}
    assert peer["shards"] == [32]


# --- store v3 ---


@pytest.fixture
def recorded_store(serve: Serve) -> httpx2.Client:
    """A node with the 60 messages that the recordings' store peer had."""
    node = DevelopmentNode(NodeSettings(shards=(SHARD,), archive_window=None))
    for number in range(60):
        node.publish(SHARD, _recorded_message(number))
    return serve(create_app(node))


@pytest.mark.parametrize("name", STORE_SAME)
def test_store_answers_as_recorded(name: str, recorded_store: httpx2.Client) -> None:
    recording = recordings.load(AREA, name)
    answer = recorded_store.get(_nwaku_query(recording.path))
    assert answer.status_code == recording.status
    if answer.status_code == 200:
        assert answer.json().pop("requestId")
        assert {**answer.json(), "requestId": ""} == _nwaku_answer(recording.answer)


@pytest.mark.parametrize("name", sorted(STORE_DIFFERS))
def test_store_answers_where_go_waku_does_not(name: str, recorded_store: httpx2.Client) -> None:
    answer = recorded_store.get(
        recordings.load(AREA, name).path if name.endswith("-hex") else _nwaku_query(recordings.load(AREA, name).path)
    )
    assert answer.status_code == 200
    assert answer.json()["statusCode"] == 200
    assert bool(answer.json()["messages"]) == (name != "store-v3-reversed-time")


@pytest.mark.parametrize("ascending", [True, False])
def test_store_walk_meets_every_message_once(ascending: bool, recorded_store: httpx2.Client) -> None:
    pages: list[list[str]] = []
    cursor = ""
    while not pages or cursor:
        answer = _store(recorded_store, pageSize="7", ascending=str(ascending).lower(), cursor=cursor)
        pages.append([entry["messageHash"] for entry in answer["messages"]])
        cursor = answer.get("paginationCursor", "")
    assert [len(page) for page in pages] == [7] * 8 + [4]
    in_time = [f"0x{message_hash(SHARD, _recorded_message(number)).hex()}" for number in range(60)]
    assert [digest for page in (pages if ascending else reversed(pages)) for digest in page] == in_time


def test_store_orders_equal_timestamps_by_hash(serve: Serve) -> None:
    client = _subscribed(serve)
    now = time.time_ns()
    for number in range(10):
        _publish(client, b"%d" % number, timestamp=now)
    digests = [entry["messageHash"] for entry in _store(client)["messages"]]
    assert digests == sorted(digests)
    first, *_ = _store(client, pageSize="4")["messages"]
    assert first["messageHash"] == digests[0]
    assert [entry["messageHash"] for entry in _store(client, cursor=digests[3])["messages"]] == digests[4:]


def test_store_page_size(recorded_store: httpx2.Client) -> None:
    sizes = {size: len(_store(recorded_store, pageSize=size)["messages"]) for size in ("", "0", "1", "1000")}
    assert sizes == {"": 20, "0": 20, "1": 1, "1000": 60}


@pytest.mark.parametrize(
    "parameters",
    [
        {"startTime": "now"},
        {"endTime": "1.5"},
        {"pageSize": "many"},
        {"hashes": "0x00"},
        {"hashes": "zz"},
        {"cursor": "0xabc"},
        {"includeData": "maybe"},
    ],
)
def test_store_refuses_bad_parameters(parameters: dict[str, str], recorded_store: httpx2.Client) -> None:
    assert recorded_store.get("/store/v3/messages", params=parameters).status_code == 400


def test_store_keeps_no_ephemeral_and_nothing_outside_the_window(serve: Serve) -> None:
    client = _subscribed(serve)
    now = time.time_ns()
    for age_s in (-21, -19, 0, 19, 21):
        _publish(client, b"%d" % age_s, timestamp=now - age_s * 10**9)
    client.post(_path(), json={**_body(b"ephemeral"), "ephemeral": True})
    kept = [entry["message"]["payload"] for entry in _store(client, includeData="true")["messages"]]
    assert [base64.b64decode(payload) for payload in kept] == [b"19", b"0", b"-19"]
    assert len(_payloads(client)) == 6


def test_archive_is_bounded() -> None:
    node = DevelopmentNode(NodeSettings(shards=(SHARD,), archive_capacity=50, archive_window=None))
    for number in range(60):
        node.publish(SHARD, _recorded_message(number))
    assert node.counters["archived"] == 60
    assert len(node.archive._order) == len(node.archive._entries) == 50
    assert node.archive._order[0][0] == _recorded_message(10).timestamp


# --- controls ---


def test_log_follows_traffic_without_consuming_it(serve: Serve) -> None:
    client = _subscribed(serve)
    before = time.time()
    _publish(client, b"1", timestamp=7)
    _publish(client, b"2")
    log = client.get("/dev/log").json()
    first = log["entries"][0]
    assert before <= first.pop("arrivedAt") <= time.time()
    message = WakuMessage(payload=b"1", content_topic=TOPIC, version=1, timestamp=7)
    digest = f"0x{message_hash(SHARD, message).hex()}"
    assert first == {"seq": 1, "pubsubTopic": SHARD, "contentTopic": TOPIC, "hash": digest}
    assert [entry["seq"] for entry in client.get("/dev/log?after=1").json()["entries"]] == [2]
    assert _payloads(client) == [b"1", b"2"]
    counters = client.get("/dev/counters").json()
    assert (counters["published"], counters["read"], counters["archived"]) == (2, 2, 1)


def test_faults_spoil_the_next_requests_only(serve: Serve) -> None:
    client = _subscribed(serve)
    client.post("/dev/faults", json={"kind": "status", "status": 503, "times": 2, "path": "/relay", "method": "GET"})
    client.post("/dev/faults", json={"kind": "delay", "seconds": 0.1, "times": 1, "path": "/relay", "method": "GET"})
    assert _publish(client, b"1").status_code == 200
    assert client.get("/health").status_code == 200
    assert [client.get(_path()).status_code for _ in range(2)] == [503, 503]
    begin = time.monotonic()
    assert _payloads(client) == [b"1"]
    assert time.monotonic() - begin >= 0.1
    assert client.get("/dev/faults").json() == []


# --- helpers ---


def _recorded_message(number: int) -> WakuMessage:
    return WakuMessage(
        payload=b"stored %d" % number,
        content_topic=OTHER_TOPIC if number % 5 == 4 else TOPIC,
        timestamp=(1_795_225_642 + number) * 10**9,
        meta=base64.b64decode("+/8="),
    )


def _message(payload: bytes) -> WakuMessage:
    return WakuMessage(payload=payload, content_topic=TOPIC, timestamp=1_795_225_642 * 10**9)


def _nwaku_query(path: str) -> httpx2.URL:
    """Return a recorded store query with hashes and cursor in hex."""
    url = httpx2.URL(path)
    parameters = {
        key: f"0x{base64.urlsafe_b64decode(value).hex()}" if key in {"hashes", "cursor"} else value
        for key, value in url.params.items()
    }
    return url.copy_with(params=parameters)


def _nwaku_answer(recorded: dict[str, Any]) -> dict[str, Any]:
    """Return a recorded store answer as nwaku would have put it."""

    def as_hex(text: str) -> str:
        return f"0x{base64.b64decode(text).hex()}"

    def entry(it: dict[str, Any]) -> dict[str, Any]:
        if "message" not in it:
            return {"messageHash": as_hex(it["message_hash"])}
        message = {**it["message"], "timestamp": int(it["message"]["timestamp"])}
        return {"messageHash": as_hex(it["message_hash"]), "message": message, "pubsubTopic": it["pubsub_topic"]}

    answer = {
        "requestId": "",
        "statusCode": recorded["status_code"],
        "statusDesc": recorded["status_desc"],
        "messages": [entry(it) for it in recorded.get("messages", [])],
    }
    if "pagination_cursor" in recorded:
        answer["paginationCursor"] = as_hex(recorded["pagination_cursor"])
    return answer


def _subscribed(serve: Serve) -> httpx2.Client:
    client = serve(create_app())
    _subscribe(client, SHARD)
    return client


def _subscribe(client: httpx2.Client, shard: str) -> None:
    assert client.post("/relay/v1/subscriptions", json=[shard]).text == "OK"


def _path(shard: str = SHARD) -> str:
    return f"/relay/v1/messages/{quote(shard, safe='')}"


def _body(payload: bytes, timestamp: int = 0) -> dict[str, Any]:
    body = {"payload": base64.b64encode(payload).decode(), "contentTopic": TOPIC, "version": 1}
    return {**body, "timestamp": timestamp} if timestamp else body


def _publish(client: httpx2.Client, payload: bytes, *, shard: str = SHARD, timestamp: int = 0) -> httpx2.Response:
    return client.post(_path(shard), json=_body(payload, timestamp))


def _payloads(client: httpx2.Client, shard: str = SHARD) -> list[bytes]:
    return [base64.b64decode(message["payload"]) for message in client.get(_path(shard)).json()]


def _store(client: httpx2.Client, **parameters: str) -> dict[str, Any]:
    answer = client.get("/store/v3/messages", params=parameters)
    assert answer.status_code == 200
    assert answer.json()["statusCode"] == 200
    content: dict[str, Any] = answer.json()
    return content
