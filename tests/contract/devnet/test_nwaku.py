"""The development Waku node with nwaku's manners: its relay, its log, and the faults that it is told to have."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette

from support import recordings
from support.nwaku import (
    AREA,
    OTHER_SHARD,
    SHARD,
    TOPIC,
    Serve,
    ask_store,
    body_of,
    payloads,
    publish,
    relay_path,
    send,
    subscribe,
    subscribed,
)
from wakupush.devnet.node import go_waku
from wakupush.devnet.node.nwaku import create_app
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings, encoded_size
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash


def test_reads_what_was_published(serve: Serve) -> None:
    client = subscribed(serve)
    send(client, recordings.load(AREA, "relay-publish"))
    expected = [{**message, "proof": ""} for message in recordings.load(AREA, "relay-get-one").answer]
    answer = client.get(relay_path())
    assert answer.json() == expected
    assert list(answer.json()[0]) == ["payload", "contentTopic", "version", "timestamp", "meta", "ephemeral", "proof"]
    assert answer.headers["content-type"] == "application/json"
    assert client.get(relay_path()).json() == []


def test_optional_fields_when_read_back(serve: Serve) -> None:
    client = subscribed(serve)
    before = time.time_ns()
    send(client, recordings.load(AREA, "relay-publish-minimal"))
    send(client, recordings.load(AREA, "relay-publish-ts-zero"))
    for message in client.get(relay_path()).json():
        assert before <= message.pop("timestamp") <= time.time_ns()
        assert message.keys() == {"payload", "contentTopic", "version", "ephemeral", "proof"}
        assert (message["version"], message["ephemeral"]) == (0, False)


def test_equal_messages_are_delivered_once(serve: Serve) -> None:
    client = subscribed(serve)
    for name in ("relay-publish-dup-1", "relay-publish-dup-2"):
        send(client, recordings.load(AREA, name))
    recorded = recordings.load(AREA, "relay-get-dup").answer
    assert client.get(relay_path()).json() == [{**it, "version": 0, "ephemeral": False, "proof": ""} for it in recorded]
    send(client, recordings.load(AREA, "relay-publish-dup-1"))
    assert client.get(relay_path()).json() == []
    assert client.get("/dev/counters").json()["duplicates"] == 2
    assert client.get("/dev/log").json()["next"] == 1


def test_unsubscribed_topic_is_404(serve: Serve) -> None:
    client = serve(create_app())
    answer = client.get(relay_path())
    assert (answer.status_code, answer.content) == (404, b"")
    subscribe(client, SHARD)
    publish(client, b"unread")
    client.request("DELETE", "/relay/v1/subscriptions", json=[SHARD])
    assert client.get(relay_path()).status_code == 404
    assert publish(client, b"x").status_code == 400
    subscribe(client, SHARD)
    assert client.get(relay_path()).json() == []


def test_repeated_subscription_is_a_no_op(serve: Serve) -> None:
    client = subscribed(serve)
    publish(client, b"1")
    subscribe(client, SHARD)
    publish(client, b"2")
    assert payloads(client) == [b"1", b"2"]
    assert payloads(client) == []
    client.request("DELETE", "/relay/v1/subscriptions", json=[SHARD])
    assert client.get(relay_path()).status_code == 404


def test_full_cache_drops_the_oldest_sender_timestamp(serve: Serve) -> None:
    client = serve(create_app(DevelopmentNode(NodeSettings(shards=(SHARD, OTHER_SHARD), cache_capacity=3))))
    now = time.time_ns()
    publish(client, b"other", shard=OTHER_SHARD, timestamp=now + 1)
    for age in (30, 10, 20):
        publish(client, b"%d" % age, timestamp=now - age)
    publish(client, b"5", timestamp=now - 5)
    assert payloads(client) == [b"10", b"5"]
    assert payloads(client, OTHER_SHARD) == [b"other"]
    assert client.get("/dev/counters").json()["dropped_from_cache"] == 2
    for number in range(3):
        publish(client, b"again %d" % number)
    assert len(payloads(client)) == 3


def test_restart(serve: Serve) -> None:
    client = serve(create_app(DevelopmentNode(NodeSettings(shards=(OTHER_SHARD,)))))
    subscribe(client, SHARD)
    publish(client, b"unread")
    publish(client, b"unread", shard=OTHER_SHARD)
    assert client.post("/dev/restart").status_code == 200
    assert client.get(relay_path()).status_code == 404
    assert client.get(relay_path(OTHER_SHARD)).json() == []
    assert len(ask_store(client)["messages"]) == 2
    assert client.get("/dev/log").json()["next"] == 2


@pytest.mark.parametrize("create", [create_app, go_waku.create_app], ids=["nwaku", "go-waku"])
def test_messages_that_peers_relay(create: Callable[[], Starlette], serve: Serve) -> None:
    client = serve(create())
    assert client.post("/relay/v1/subscriptions", json=[SHARD]).status_code == 200
    messages = [{"payload": base64.b64encode(text).decode(), "contentTopic": TOPIC} for text in (b"one", b"two")]
    assert client.post("/dev/messages", json={"pubsubTopic": SHARD, "messages": messages}).status_code == 200
    assert payloads(client) == [b"one", b"two"]
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
    client = subscribed(serve)
    assert client.post("/relay/v1/subscriptions", headers=headers, content=b"[]").status_code == status
    body = b'{"payload": "AAAA", "contentTopic": "/a/1/b/c"}'
    assert client.post(relay_path(), headers=headers, content=body).status_code == status


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
    client = subscribed(serve)
    body = json.dumps({**body_of(b"x"), **change})
    assert client.post(relay_path(), headers={"Content-Type": "application/json"}, content=body).status_code == 400
    assert client.get(relay_path()).json() == []


@pytest.mark.parametrize("size", [(1_048_576, 200), (1_048_577, 400)])
def test_size_limit_is_of_the_protobuf(size: tuple[int, int], serve: Serve) -> None:
    client = subscribed(serve)
    wanted, status = size
    payload = b"z" * (wanted - encoded_size(_message(b"z" * 150_000)) + 150_000)
    assert encoded_size(_message(payload)) == wanted
    assert publish(client, payload, timestamp=_message(b"").timestamp).status_code == status


def test_encoded_size() -> None:
    # payload, content topic, version, timestamp (zigzag 300 in two bytes), meta, ephemeral (tag of two bytes)
    message = WakuMessage(payload=b"ab", content_topic="abc", timestamp=150, meta=b"m", ephemeral=True)
    assert encoded_size(message) == 4 + 5 + 2 + 3 + 3 + 3
    assert encoded_size(WakuMessage(payload=b"", content_topic="", version=0, timestamp=-(2**63))) == 11


def test_info_version_health_and_peers(serve: Serve) -> None:
    client = subscribed(serve)
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


def test_log_follows_traffic_without_consuming_it(serve: Serve) -> None:
    client = subscribed(serve)
    before = time.time()
    publish(client, b"1", timestamp=7)
    publish(client, b"2")
    log = client.get("/dev/log").json()
    first = log["entries"][0]
    assert before <= first.pop("arrivedAt") <= time.time()
    message = WakuMessage(payload=b"1", content_topic=TOPIC, version=1, timestamp=7)
    digest = f"0x{message_hash(SHARD, message).hex()}"
    assert first == {"seq": 1, "pubsubTopic": SHARD, "contentTopic": TOPIC, "hash": digest}
    assert [entry["seq"] for entry in client.get("/dev/log?after=1").json()["entries"]] == [2]
    assert payloads(client) == [b"1", b"2"]
    counters = client.get("/dev/counters").json()
    assert (counters["published"], counters["read"], counters["archived"]) == (2, 2, 1)


def test_faults_spoil_the_next_requests_only(serve: Serve) -> None:
    client = subscribed(serve)
    client.post("/dev/faults", json={"kind": "status", "status": 503, "times": 2, "path": "/relay", "method": "GET"})
    client.post("/dev/faults", json={"kind": "delay", "seconds": 0.1, "times": 1, "path": "/relay", "method": "GET"})
    assert publish(client, b"1").status_code == 200
    assert client.get("/health").status_code == 200
    assert [client.get(relay_path()).status_code for _ in range(2)] == [503, 503]
    begin = time.monotonic()
    assert payloads(client) == [b"1"]
    assert time.monotonic() - begin >= 0.1
    assert client.get("/dev/faults").json() == []


def _message(payload: bytes) -> WakuMessage:
    return WakuMessage(payload=payload, content_topic=TOPIC, timestamp=1_795_225_642 * 10**9)
