"""The development Waku node with nwaku's manners against every recording of a nwaku 0.38.1."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from support import recordings
from support.go_waku import OTHER_SHARD, SHARD, TOPIC, Serve, relay_path
from support.nwaku import AREA, OTHER_TOPIC, payload_size, send, subscribe
from wakupush.devnet.node.filter_state import NwakuFilter
from wakupush.devnet.node.nwaku import create_app
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings


def _names_like(pattern: str) -> set[str]:
    return {name for name in recordings.names(AREA) if re.fullmatch(pattern, name)}


OWN_SERVICE = "the node is its own service node"
NO_PEERS = "the node never lacks peers"
NOT_IMITATED = {
    r"admin-(peers-(B|connected|peer-gone)|post-peer-bad)": "our code reads the relay peers alone",
    r"auto-.*": "auto sharding is not built",
    r"light-.*": "the node has relay",
    r"options|health-head": "our code sends no such request",
    r"health-(no-peers|peer-gone)": NO_PEERS,
    r"lightpush-v.-service-without-peers": NO_PEERS,
    r"(filter|lightpush-v.)-.*(no-service|service-down|while-down)": OWN_SERVICE,
    r"filter-ping-after-client-restart": OWN_SERVICE,
    r"store-v3-(known-peer|no-store-no-peer|not-mounted)": "the node has a Store of its own",
    r"store-v3-(remote(-cursor-unknown)?|service-down)": "the node has a Store of its own",
    r".*-size-(153551|1048527)": "a limit of our own encoding, which is a few bytes shorter than nwaku's",
    r"relay-get-(after-size-.*|1024KiB-A-alone)": "its peers get all that the node takes",
}
SKIPPED = {name for pattern in NOT_IMITATED for name in _names_like(pattern)}

#: Requests to a node that has joined both shards: status, headers and body are as recorded.
FRESH = {
    *_names_like(r"relay-(subscribe|resubscribe|unsubscribe|publish).*"),
    *_names_like(r"relay-get-(unencoded-topic|not-subscribed|nonsense|empty|command-line-shard|no-peers-ever)"),
    *_names_like(r"not-found.*|relay-subscriptions-get|debug-info-post|store-v1.*"),
    *_names_like(r"filter-(re)?subscribe.*"),
    *_names_like(r"filter-messages-(before-subscribe|not-subscribed|by-shard|unencoded|after-client-restart)"),
    *_names_like(r"filter-ping-(before-subscribe|no-id|after-service-restart|after-unsubscribe-all)"),
    *_names_like(r"filter-unsubscribe-(again|all-again|bad-json)"),
    *_names_like(r"lightpush-v[13].*"),
} - SKIPPED
#: Requests to a node with filter subscriptions to two topics, and to one of them on the other shard.
SUBSCRIBED = {
    *_names_like(r"filter-messages-(again|empty|after-service-restart)"),
    *_names_like(r"filter-ping|filter-ping-after-resubscribe|filter-unsubscribe(-all|-unknown)?"),
}
#: What stands otherwise before a request to a fresh node.
BEFORE = {
    "relay-publish-after-delete": ["relay-unsubscribe"],
    "lightpush-v1-again": ["lightpush-v1"],
    "lightpush-v1-known-by-relay": ["lightpush-v1-known-by-relay"],
    "lightpush-v3-again": ["lightpush-v3"],
    "lightpush-v3-known-by-relay": ["lightpush-v3-known-by-relay"],
    "filter-subscribe-rate-limited": 30 * ["filter-ping"],
    "filter-unsubscribe-rate-limited": 30 * ["filter-ping"],
    "filter-ping-rate-limited": 30 * ["filter-ping"],
    "filter-messages-rate-limited": [*(30 * ["filter-ping"]), "filter-subscribe-rate-limited"],
    "filter-messages-of-101": ["filter-subscribe-101"],
    "filter-messages-after-unsubscribe": ["filter-subscribe", "filter-subscribe-again", "filter-unsubscribe"],
    "filter-messages-after-unsubscribe-all": ["filter-subscribe", "filter-unsubscribe-all"],
    "relay-get-after-unsubscribe": ["relay-publish", "relay-unsubscribe"],
    "relay-get-after-resubscribe": ["relay-publish", "relay-unsubscribe", "relay-resubscribe"],
    "relay-get-after-meta-65": ["relay-publish-meta-65"],
    "relay-get-after-meta-65-own": ["relay-publish-meta-65"],
    "relay-get-one-of-two-nonsense": ["relay-subscribe-one-of-two-nonsense"],
    "relay-get-one": ["relay-publish"],
    "relay-get-own": ["relay-publish"],
    "relay-get-again": ["relay-publish", "relay-get-one"],
    "relay-get-dup": ["relay-publish-dup-1", "relay-publish-dup-2"],
    "relay-get-dup-own": ["relay-publish-dup-1", "relay-publish-dup-2"],
    "relay-get-dup-after-read-own": ["relay-publish-dup-1", "relay-get-dup-own", "relay-publish-dup-3"],
}
STORE = _names_like(r"store-v3.*") - SKIPPED - {"store-v3-post", "store-v3-remote-peer"}
FRESH |= {*BEFORE, "store-v3-post"}
#: What the other tests compare.
COMPARED_BELOW = {
    "test_relay_messages_as_recorded": _names_like(
        r"relay-get-(after-double-subscription-[01]|no-peers|shard-(32|64))"
    ),
    "test_what_was_accepted_reads_back_as_recorded": {"relay-get-many"},
    "test_full_relay_cache": _names_like(r"relay-get-overflow-(1|2|other-topic)"),
    "test_full_relay_cache_keeps_what_arrives": {"relay-get-overflow-late"},
    "test_restart": {"relay-get-after-restart", "relay-get-after-restart-rest"},
    "test_own_publication_of_a_known_message": {"relay-get-dup-after-read"},
    "test_filter_messages_as_recorded": _names_like(r"filter-messages(-(ct2|own-push|two-shards|after-resubscribe))?"),
    "test_full_filter_cache": {"filter-messages-overflow"},
    "test_filter_expires": {"filter-messages-expired", "filter-ping-expired"},
    "test_info_version_health_and_peers": {"debug-info", "debug-version", "info", "version", "health", "admin-peers"},
    "test_relay_peers": {"admin-peers-relay"},
    "test_store_of_a_peer": {"store-v3-remote-peer"},
}


def test_every_recording_is_accounted_for() -> None:
    groups = (FRESH, SUBSCRIBED, STORE, *COMPARED_BELOW.values(), SKIPPED)
    assert sorted(name for group in groups for name in group) == sorted(recordings.names(AREA))
    assert [pattern for pattern in NOT_IMITATED if not _names_like(pattern)] == []
    assert COMPARED_BELOW.keys() <= globals().keys()


@pytest.fixture
def serving(serve: Serve) -> Callable[..., tuple[httpx2.Client, DevelopmentNode]]:
    """Serve a node that has joined both shards."""

    def make(**settings: Any) -> tuple[httpx2.Client, DevelopmentNode]:
        node = DevelopmentNode(NodeSettings(shards=(SHARD, OTHER_SHARD), **settings))
        return serve(create_app(node)), node

    return make


Serving = Callable[..., tuple[httpx2.Client, DevelopmentNode]]


@pytest.mark.parametrize("name", sorted(FRESH))
def test_answers_as_recorded(name: str, serving: Serving) -> None:
    client, _ = serving(max_message_bytes=1024 * 1024 if "1024KiB" in name else 150 * 1024)
    for each in BEFORE.get(name, []):
        send(client, recordings.load(AREA, each))
    _check(client, name)


@pytest.mark.parametrize("name", sorted(SUBSCRIBED))
def test_answers_with_subscriptions_as_recorded(name: str, serving: Serving) -> None:
    client, _ = serving()
    _subscribe_filter(client)
    _check(client, name)


@pytest.mark.parametrize("name", sorted(STORE))
def test_store_answers_as_recorded(name: str, recorded_store: httpx2.Client) -> None:
    if "after-restart" in name:
        recorded_store.post("/dev/restart").raise_for_status()
    _check(recorded_store, name)


@pytest.mark.parametrize("name", sorted(COMPARED_BELOW["test_relay_messages_as_recorded"]))
def test_relay_messages_as_recorded(name: str, serving: Serving) -> None:
    client, _ = serving()
    shard = OTHER_SHARD if name.endswith("64") else SHARD
    for _ in range(2):
        subscribe(client, shard)
    for message in recordings.load(AREA, name).answer:
        assert client.post(relay_path(shard), json=message).text == "OK"
    _check(client, name)


def test_what_was_accepted_reads_back_as_recorded(serving: Serving) -> None:
    client, _ = serving()
    recorded = recordings.load(AREA, "relay-get-many").answer
    published = {
        _json_of(recording)["payload"].rstrip("="): recording
        for recording in (recordings.load(AREA, name) for name in sorted(_names_like("relay-publish.*")))
        if recording.status == 200 and not payload_size(recording.name)
    }
    for message in recorded:
        assert send(client, published[message["payload"].rstrip("=")]).text == "OK"
    messages = client.get(relay_path()).json()
    for message in recorded:
        message["proof"] = ""  # it is not kept
    for message in (messages[0], messages[1], recorded[0], recorded[1]):
        assert message.pop("timestamp") > 10**18  # of the node's own clock
    assert messages == recorded


def test_own_publication_of_a_known_message(serving: Serving) -> None:
    """What came from a peer and was read is in the node's own cache again after it was published here."""
    client, _ = serving()
    publication = recordings.load(AREA, "relay-publish-dup-B")
    for count in (1, 0):  # the second comes from another peer
        client.post("/dev/messages", json={"pubsubTopic": SHARD, "messages": [publication.body]}).raise_for_status()
        assert len(client.get(relay_path()).json()) == count
    assert send(client, publication).text == "OK"
    _check(client, "relay-get-dup-after-read")
    assert client.get("/dev/counters").json()["duplicates"] == 2
    assert client.get("/dev/log").json()["next"] == 1


def test_full_relay_cache(serving: Serving) -> None:
    client, _ = serving(cache_capacity=50)
    recorded = recordings.load(AREA, "relay-get-overflow-1").answer
    for number in range(10):
        _publish(client, b"g%d" % number, timestamp=number + 1, shard=OTHER_SHARD)
    for number in range(10):
        _publish(client, b"f%d" % number, timestamp=number + 20)
    for message in sorted(recorded, key=lambda message: message["timestamp"]):
        client.post(relay_path(), json=message).raise_for_status()
    for name in ("overflow-1", "overflow-2", "overflow-other-topic"):
        _check(client, f"relay-get-{name}")
    assert client.get("/dev/counters").json()["dropped_from_cache"] == 20


def test_full_relay_cache_keeps_what_arrives(serving: Serving) -> None:
    client, _ = serving(cache_capacity=50)
    *young, late = sorted(recordings.load(AREA, "relay-get-overflow-late").answer, key=_number)
    _publish(client, b"young0", timestamp=young[0]["timestamp"] - 1)
    for message in young:
        client.post(relay_path(), json=message).raise_for_status()
    for number in range(4):
        _publish(client, b"late%d" % number, timestamp=late["timestamp"] - 4 + number)
    client.post(relay_path(), json=late).raise_for_status()
    _check(client, "relay-get-overflow-late")


def test_restart(serving: Serving) -> None:
    client, _ = serving()
    subscribe(client, "/waku/2/rs/16/99")
    send(client, recordings.load(AREA, "relay-publish"))
    client.post("/dev/restart").raise_for_status()
    for name in ("relay-get-after-restart", "relay-get-after-restart-rest"):
        _check(client, name)


@pytest.mark.parametrize("name", sorted(COMPARED_BELOW["test_filter_messages_as_recorded"]))
def test_filter_messages_as_recorded(name: str, serving: Serving) -> None:
    client, _ = serving()
    _subscribe_filter(client)
    for number, message in enumerate(recordings.load(AREA, name).answer):
        shard = OTHER_SHARD if name.endswith("two-shards") and number == 0 else SHARD
        pushed = {"pubsubTopic": shard, "message": message}
        assert client.post("/lightpush/v1/message", json=pushed).text == "OK"
    _check(client, name)


def test_full_filter_cache(serving: Serving) -> None:
    client, _ = serving()
    _subscribe_filter(client)
    recorded = recordings.load(AREA, "filter-messages-overflow").answer
    for number in range(10):
        _publish(client, b"o%d" % number, timestamp=number + 1)
    for message in sorted(recorded, key=lambda message: message["timestamp"]):
        client.post(relay_path(), json=message).raise_for_status()
    _check(client, "filter-messages-overflow")


def test_filter_expires(serving: Serving) -> None:
    client, node = serving()
    now = 0.0
    node.filter = NwakuFilter(clock=lambda: now)
    _subscribe_filter(client)
    for now, count in ((298.0, 1), (301.0, 0)):
        _publish(client, b"at %d" % now, timestamp=1)
        assert len(client.get(f"/filter/v2/messages/{quote(TOPIC, safe='')}").json()) == count
    for name in ("filter-messages-expired", "filter-ping-expired"):
        _check(client, name)


def test_info_version_health_and_peers(serving: Serving) -> None:
    client, _ = serving()
    for name in ("debug-info", "info", "debug-version", "version", "health", "admin-peers"):
        recorded = recordings.load(AREA, name)
        answer = client.get(recorded.path)
        assert answer.headers["content-type"] == recorded.content_type
        assert answer.headers["connection"] == "close"
        if name.endswith("version"):
            continue
        value, expected = answer.json(), recorded.answer
        if name == "admin-peers":
            (value,), (expected,) = value, expected
        assert value.keys() == expected.keys()
        if name == "health":
            assert all(each in expected["protocolsHealth"] for each in value.pop("protocolsHealth"))
            assert value.items() <= expected.items()


def test_store_of_a_peer(serving: Serving, recorded_store: httpx2.Client) -> None:
    client, _ = serving()
    recording = recordings.load(AREA, "store-v3-remote-peer")
    port = str(recorded_store.base_url.port)
    answer = client.get(recording.path.replace("60101", port))
    assert answer.status_code == recording.status
    value, expected = answer.json(), recording.answer
    assert len(value.pop("requestId")) == len(expected.pop("requestId"))
    assert value == expected


def test_relay_peers(serving: Serving) -> None:
    client, _ = serving()
    (_, *recorded) = recordings.load(AREA, "admin-peers-relay").answer
    answer = client.get("/admin/v1/peers/relay").json()
    assert [entry["shard"] for entry in answer] == [entry["shard"] for entry in recorded] == [32, 64]
    for (peer,), (expected,) in zip([e["peers"] for e in answer], [e["peers"] for e in recorded], strict=True):
        assert peer.keys() == expected.keys()
        assert peer["shards"] == expected["shards"]
    client.post("/dev/network", json={"lonelyShards": [SHARD]}).raise_for_status()
    assert [len(entry["peers"]) for entry in client.get("/admin/v1/peers/relay").json()] == [0, 1]


def _check(client: httpx2.Client, name: str) -> None:
    """Send a recorded request, and compare the answer: its status, type, end of the connection, and body."""
    recording = recordings.load(AREA, name)
    answer = send(client, recording)
    is_text = recording.answer == "" or (recording.content_type or "").startswith("text/")
    assert (answer.status_code, answer.text if is_text else answer.json()) == (recording.status, recording.answer)
    assert answer.headers["content-type"] == recording.content_type
    assert answer.headers["connection"] == "close" == recording.answer_headers["Connection"]


def _subscribe_filter(client: httpx2.Client) -> None:
    for shard, topics in ((SHARD, [TOPIC, OTHER_TOPIC]), (OTHER_SHARD, [TOPIC])):
        body = {"requestId": "r", "contentFilters": topics, "pubsubTopic": shard}
        assert client.post("/filter/v2/subscriptions", json=body).json() == {"requestId": "r", "statusDesc": "OK"}


def _publish(client: httpx2.Client, payload: bytes, *, timestamp: int, shard: str = SHARD) -> None:
    body = {"payload": base64.b64encode(payload).decode(), "contentTopic": TOPIC, "timestamp": timestamp}
    assert client.post(relay_path(shard), json=body).text == "OK"


def _json_of(recording: recordings.Recording) -> dict[str, Any]:
    body = json.loads(recording.body) if isinstance(recording.body, str) else recording.body
    assert isinstance(body, dict)
    return body


def _number(message: dict[str, Any]) -> int:
    """Return the number in the payload of a message: those of the late come after the young."""
    text = base64.b64decode(message["payload"]).decode()
    return int(text.removeprefix("young")) if text.startswith("young") else 1000
