"""The development Waku node: as go-waku was recorded where nwaku has the same manners, else as the table says.

The table is that of docs/reference/contracts/waku-rest.md, section 6.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support import recordings
from support.nwaku import AREA, OTHER_SHARD, SHARD, Serve, send
from wakupush.devnet.node.nwaku import create_app
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings

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
    written = "".join(path.read_text() for path in Path(__file__).parent.glob("test_nwaku*.py"))
    assert [name for name in COMPARED_BELOW.values() if f"def {name}(" not in written] == []


@pytest.mark.parametrize("name", sorted(RELAY))
def test_relay_as_expected(name: str, serve: Serve) -> None:
    client = serve(create_app(DevelopmentNode(NodeSettings(shards=(SHARD, OTHER_SHARD)))))
    recording, expected = recordings.load(AREA, name), RELAY[name]
    answer = send(client, recording)
    assert answer.status_code == expected.status
    assert expected.text in answer.text
    if expected.why == SAME:
        assert answer.status_code == recording.status
    if expected is OK:
        assert recording.status == 200
        assert answer.text == "OK"
        assert answer.headers["content-type"].startswith("text/plain")


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
