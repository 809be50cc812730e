"""The relay of the development Waku node with go-waku's manners, and of go-waku itself where it is at hand."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import httpx2
import pytest

from support import recordings
from support.go_waku import (
    AREA,
    CAPACITY,
    OTHER_SHARD,
    SHARD,
    TOPIC,
    Serve,
    development_node,
    encode,
    history,
    media_type,
    relay_path,
    subscribe,
)
from wakupush.devnet.node.go_waku_state import INBOX_CAPACITY, LINE_CAPACITY
from wakupush.devnet.processes import wait_until
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash

TRUE = (200, "application/json; charset=utf-8", "true")


def _wrong(text: str) -> tuple[int, str, str]:
    return 400, "text/plain; charset=utf-8", text


def _type_error(json_type: str, field: str, go_type: str) -> tuple[int, str, str]:
    return _wrong(f"json: cannot unmarshal {json_type} into Go struct field RestWakuMessage.{field} of type {go_type}")


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
    subscribe(client, SHARD)
    answers = {body: client.post(relay_path(), content=body.encode()) for body in PUBLISHED}
    assert {body: (it.status_code, media_type(it), it.text) for body, it in answers.items()} == PUBLISHED
    assert {message["contentTopic"] for message in _read_all(client, count=3)} == {"x", " ", "\ufffd"}


def test_requests_that_are_odd(client: httpx2.Client) -> None:
    subscriptions = "/relay/v1/subscriptions"
    expected = {
        ("POST", subscriptions, "null"): 200,
        ("POST", subscriptions, '["a", 1]'): 400,
        ("POST", subscriptions, '[""]'): 200,
        ("DELETE", subscriptions, json.dumps(["never", SHARD])): 200,
        ("DELETE", subscriptions, json.dumps([OTHER_SHARD, "never"])): 500,
        ("POST", relay_path(), '{"payload": "AAAA", "contentTopic": "x"}'): 500,  # the node has left the shard
        ("POST", relay_path(), '{"payload": "AAAA"}'): 400,
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
    assert client.get(relay_path()).text == recorded.answer
    subscribe(client, SHARD)
    client.request("DELETE", "/relay/v1/subscriptions", json=[SHARD])
    answer = client.get(relay_path())
    assert (answer.status_code, media_type(answer), answer.text) == (
        recorded.status,
        recorded.content_type,
        recorded.answer,
    )


def test_plus_in_a_path_is_a_space(client: httpx2.Client) -> None:
    subscribe(client, "a b")
    assert client.get("/relay/v1/messages/a+b").text == "null"
    assert client.get("/relay/v1/messages/a%20b").text == "null"
    assert client.get("/relay/v1/messages/a%2Bb").status_code == 404


def test_second_subscription_is_a_second_queue(client: httpx2.Client) -> None:
    subscribe(client, SHARD)
    subscribe(client, SHARD)
    for number in range(6):
        _publish(client, b"d%d" % number)
    time.sleep(0.1)  # go-waku hands out in its own time
    reads = [client.get(relay_path()).json() for _ in range(60)]  # one in 2**59 runs reads the same queue all the time
    payloads = [sorted(base64.b64decode(message["payload"]) for message in batch) for batch in reads if batch]
    assert payloads == 2 * [[b"d0", b"d1", b"d2", b"d3", b"d4", b"d5"]]
    client.request("DELETE", "/relay/v1/subscriptions", json=[SHARD])
    assert client.get(relay_path()).status_code == recordings.load(AREA, "relay-get-after-unsub-of-double").status


def test_full_queue_blocks_shards_and_archive(client: httpx2.Client) -> None:
    subscribe(client, SHARD, OTHER_SHARD)
    for number in range(300):
        assert _publish(client, b"f%d" % number, shard=OTHER_SHARD) == 200
    for number in range(5):
        assert _publish(client, b"s%d" % number) == 200
    time.sleep(0.3)
    assert client.get(relay_path()).json() == recordings.load(AREA, "relay-get-overflow-other-topic").answer
    assert len(history(client)) == CAPACITY
    first = client.get(relay_path(OTHER_SHARD)).json()
    assert CAPACITY <= len(first) <= len(recordings.load(AREA, "relay-get-overflow-1").answer) == CAPACITY + 1
    rest = _read_all(client, OTHER_SHARD, count=300 - len(first))
    assert {message["payload"] for message in first + rest} == {encode(b"f%d" % number) for number in range(300)}
    assert len(_read_all(client, count=5)) == 5
    wait_until(lambda: len(history(client)) == 305, timeout=60, what="everything is archived")


def test_newest_are_dropped_when_all_buffers_are_full(client: httpx2.Client) -> None:
    subscribe(client, OTHER_SHARD)
    capacity = CAPACITY + LINE_CAPACITY + INBOX_CAPACITY
    for number in range(capacity + 100):
        assert _publish(client, b"%d" % number, shard=OTHER_SHARD) == 200
    time.sleep(0.3)
    remainder = _read_all(client, OTHER_SHARD, count=capacity)
    assert {message["payload"] for message in remainder} == {encode(b"%d" % number) for number in range(capacity)}
    _publish(client, b"after", shard=OTHER_SHARD)
    assert [message["payload"] for message in _read_all(client, OTHER_SHARD, count=1)] == [encode(b"after")]


def test_shards_have_own_caches_before_the_common_one(client: httpx2.Client) -> None:
    subscribe(client, SHARD, OTHER_SHARD)
    for number in range(CAPACITY + LINE_CAPACITY + INBOX_CAPACITY + 1):
        _publish(client, b"%d" % number, shard=OTHER_SHARD)
    for number in range(5):
        _publish(client, b"s%d" % number)
    _read_all(client, OTHER_SHARD, count=CAPACITY + LINE_CAPACITY + INBOX_CAPACITY)
    assert len(_read_all(client, count=5)) == 5


def test_subscriptions_wait_while_the_node_is_blocked(client: httpx2.Client) -> None:
    subscribe(client, SHARD)
    for number in range(CAPACITY + 2):
        _publish(client, b"%d" % number)
    with pytest.raises(httpx2.ReadTimeout):
        client.post("/relay/v1/subscriptions", json=["later"], timeout=0.3)
    _read_all(client, count=CAPACITY + 2)
    wait_until(lambda: client.get(relay_path("later")).status_code == 200, timeout=60, what="the subscription is made")


def test_restart(serve: Serve) -> None:
    client = development_node(serve)
    subscribe(client, SHARD)
    for number in range(CAPACITY + 10):
        _publish(client, b"%d" % number)
    assert client.post("/dev/restart").status_code == 200
    assert client.get(relay_path()).status_code == 404
    assert len(history(client)) == CAPACITY  # what waited is gone
    subscribe(client, SHARD)
    _publish(client, b"after")
    assert [message["payload"] for message in client.get(relay_path()).json()] == [encode(b"after")]
    counters = client.get("/dev/counters").json()
    assert (counters["restarts"], counters["published"], counters["archived"]) == (1, CAPACITY + 11, CAPACITY + 1)


def test_log_shows_publications_of_a_blocked_node(serve: Serve) -> None:
    client = development_node(serve)
    subscribe(client, SHARD)
    for number in range(CAPACITY + LINE_CAPACITY + INBOX_CAPACITY + 3):
        _publish(client, b"%d" % number, timestamp=number + 1)
    log = client.get("/dev/log").json()
    assert log["next"] == CAPACITY + LINE_CAPACITY + INBOX_CAPACITY + 3
    first = WakuMessage(payload=b"0", content_topic=TOPIC, version=0, timestamp=1)
    assert log["entries"][0]["hash"] == f"0x{message_hash(SHARD, first).hex()}"
    assert client.get("/dev/counters").json()["dropped_from_cache"] == 3


def _publish(client: httpx2.Client, payload: bytes, *, shard: str = SHARD, timestamp: int = 0) -> int:
    body = {"payload": encode(payload), "contentTopic": TOPIC, "timestamp": timestamp or time.time_ns()}
    return client.post(relay_path(shard), json=body).status_code


def _read_all(client: httpx2.Client, shard: str = SHARD, *, count: int) -> list[dict[str, Any]]:
    """Read until so many messages have come, and once more."""
    messages: list[dict[str, Any]] = []
    wait_until(
        lambda: messages.extend(client.get(relay_path(shard)).json() or []) or len(messages) >= count,
        timeout=60,
        interval=0.005,
        what=f"{count} messages of {shard}",
    )
    assert client.get(relay_path(shard)).json() is None
    return messages
