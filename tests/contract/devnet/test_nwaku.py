"""The development Waku node with nwaku's manners: its relay, its log, and the faults that it is told to have."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette

from support.go_waku import OTHER_SHARD, SHARD, TOPIC, Serve, relay_path
from support.nwaku import body_of, payloads, publish, subscribed
from wakupush.devnet.node import go_waku
from wakupush.devnet.node.nwaku import create_app
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings, encoded_size
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash


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
    "change",
    [
        {"timestamp": 2**63},
        {"timestamp": True},
        {"version": -1},
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
    expected_size, status = size
    payload = b"z" * (expected_size - encoded_size(_message(b"z" * 150_000)) + 150_000)
    assert encoded_size(_message(payload)) == expected_size
    assert publish(client, payload, timestamp=_message(b"").timestamp).status_code == status


def test_encoded_size() -> None:
    # payload, content topic, version, timestamp (zigzag 300 in two bytes), meta, ephemeral (tag of two bytes)
    message = WakuMessage(payload=b"ab", content_topic="abc", timestamp=150, meta=b"m", ephemeral=True)
    assert encoded_size(message) == 4 + 5 + 2 + 3 + 3 + 3
    assert encoded_size(WakuMessage(payload=b"", content_topic="", version=0, timestamp=-(2**63))) == 11


def test_cache_has_a_message_under_one_shard_only(serve: Serve) -> None:
    """As nwaku's source has it: its cache compares messages, whose shard is no part of them."""
    client = serve(create_app(DevelopmentNode(NodeSettings(shards=(SHARD, OTHER_SHARD)))))
    for shard in (OTHER_SHARD, SHARD):
        publish(client, b"one", shard=shard, timestamp=1)
    assert (payloads(client), payloads(client, OTHER_SHARD)) == ([], [b"one"])


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
