"""The development Waku node with go-waku's manners against every recording of go-waku."""

from __future__ import annotations

import base64
import json
import re
import time
from pathlib import Path

import httpx2
import pytest

from support import recordings
from support.go_waku import AREA, OTHER_SHARD, SHARD, TOPIC, Serve, encode, media_type, relay_path, subscribe
from wakupush.devnet.node.go_waku import create_app
from wakupush.devnet.node.go_waku_state import GoWakuNode
from wakupush.devnet.node.state import NodeSettings
from wakupush.model.waku_message import WakuMessage

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
#: What the other tests compare.
COMPARED_BELOW = {
    "test_messages_read_back_as_recorded": {f"relay-get-{end}" for end in ("one", "own", "many", "dup", "empty")},
    "test_unsubscribed": {"relay-get-after-unsubscribe"},
    "test_second_subscription_is_a_second_queue": {
        *(f"relay-get-after-double-subscription-{number}" for number in range(3)),
        "relay-get-after-unsub-of-double",
    },
    "test_full_queue_blocks_shards_and_archive": {"relay-get-overflow-1", "relay-get-overflow-other-topic"},
    "test_info_version_and_peers": {"debug-info", "debug-version", "admin-peers", "admin-peers-B"},
    "test_store_v1_pages_as_recorded": {
        *("store-v1-local", "store-v1-page1", "store-v1-page2", "store-v1-desc", "store-v1-multi-ct"),
        *("store-v1-remote", "store-v1-no-store-no-peer", "store-v1-pagesize-1000"),
    },
    "test_archive_takes_any_timestamp": {"store-v1-timestamp-window"},
    "test_store_v3_has_no_peer": {"store-v3-unreachable-peer"},
}
NOT_APPLICABLE = {
    r"relay-publish-no-peers": NO_PEERS,
    r"auto-.*": "auto sharding is not built",
    r"filter-.*": "compared in test_light",
    r"lightpush-.*": "compared in test_light",
    r"store-v3-(by-hash|cursor-unknown|data-page.|desc|hashes-only|last-page|multi-ct|no-match|time-range)": (
        "answered by a Store v3 peer, which this node has not"
    ),
    r"light-.*": "this node has relay",
    r"_throughput-relay": "a measurement",
}


def test_every_recording_is_accounted_for() -> None:
    skipped = {name for name in recordings.names(AREA) if any(re.fullmatch(each, name) for each in NOT_APPLICABLE)}
    groups = (AS_RECORDED - skipped, *COMPARED_BELOW.values(), skipped)
    assert sorted(name for group in groups for name in group) == sorted(recordings.names(AREA))
    written = "".join(path.read_text() for path in Path(__file__).parent.glob("test_go_waku*.py"))
    assert [name for name in COMPARED_BELOW if f"def {name}(" not in written] == []


@pytest.mark.parametrize("name", sorted(AS_RECORDED - {"relay-publish-no-peers"}))
def test_answers_as_recorded(name: str, serve: Serve) -> None:
    client = serve(create_app(GoWakuNode(NodeSettings(shards=(SHARD, OTHER_SHARD), max_message_bytes=150_000))))
    recording = recordings.load(AREA, name)
    if method := BEFORE.get(name):
        client.request(method, "/relay/v1/subscriptions", json=[SHARD, OTHER_SHARD])
    answer = _send(client, recording)
    assert answer.status_code == recording.status
    assert media_type(answer) == (recording.content_type or "").lower()
    assert answer.text == recording.text


def test_messages_read_back_as_recorded(serve: Serve) -> None:
    client = serve(create_app())
    subscribe(client, SHARD)
    assert client.get(relay_path()).text == recordings.load(AREA, "relay-get-empty").text
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
        answer = client.get(relay_path())
        assert answer.text == recordings.load(AREA, recorded).text  # the order of the keys as well
        assert media_type(answer) == recordings.load(AREA, recorded).content_type.lower()
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
    recorded_messages = [message for name in names for message in recordings.load(AREA, name).answer["messages"]]
    for message in recorded_messages:
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


@pytest.mark.parametrize("name", sorted(COMPARED_BELOW["test_store_v1_pages_as_recorded"]))
def test_store_v1_pages_as_recorded(name: str, recorded_archive: httpx2.Client) -> None:
    recording = recordings.load(AREA, name)
    answer = recorded_archive.get(recording.path)
    assert answer.status_code == recording.status
    assert media_type(answer) == recording.content_type.lower()
    assert answer.text == recording.text  # cursor and digest as well


def test_archive_takes_any_timestamp(serve: Serve) -> None:
    client = serve(create_app())
    subscribe(client, SHARD)
    recording = recordings.load(AREA, "store-v1-timestamp-window")
    for message in reversed(recording.answer["messages"]):
        client.post(relay_path(), json=message)
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


def _send(client: httpx2.Client, recording: recordings.Recording) -> httpx2.Response:
    body = recording.body
    if size := re.fullmatch(r"relay-publish-size-(\d+)", recording.name):  # the recording holds only its beginning
        body = {"payload": encode(b"z" * int(size[1])), "contentTopic": TOPIC, "timestamp": time.time_ns()}
    return client.request(
        recording.method, recording.path, headers=recording.headers, content=recording.content(body) or None
    )


def _text(value: object) -> str:
    """Return a JSON value as Go writes it."""
    return json.dumps(value, separators=(",", ":"))
