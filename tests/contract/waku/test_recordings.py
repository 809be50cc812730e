"""Every recorded answer of a real node's relay, debug and health routes through the client."""

import json
from pathlib import Path

import pytest

from support.answering import serving
from wakupush.model.waku_message import WakuMessage
from wakupush.waku.codec import decode_message
from wakupush.waku.errors import NodeRefused, NodeUnreachable, NotSubscribed
from wakupush.waku.node import NodeHealth, WakuNode

RECORDINGS = Path(__file__).parents[2] / "recordings" / "waku-rest"
SHARD = "/waku/2/rs/16/32"
MESSAGE = WakuMessage(payload=b"x", content_topic="/waku/1/0x1a2b3c4d/rfc26")

#: Recordings of routes that this adapter does not use, by the beginning of their names.
OTHER_ROUTES = {
    "_throughput-": "a table of measurements",
    "admin-post-": "peers are the operator's",
    "auto-": "auto-sharding is fixed to cluster 1 in go-waku",
    "filter-": "light clients: test_light",
    "lightpush-": "light clients: test_light",
    "relay-unsubscribe": "a DELETE makes the node leave the shard: never called",
    "store-": "the Store has its own adapter",
    "debug-version": "not asked",
    "not-found": "a route that does not exist",
}
#: Payloads (or how many) of each recorded read, or the error.
READS = {
    "relay-get-after-double-subscription-0": [b"d0", b"d1", b"d2", b"d3", b"d4", b"d5"],
    "relay-get-after-double-subscription-1": [],
    "relay-get-after-double-subscription-2": [],
    "relay-get-after-restart": NotSubscribed,
    "relay-get-after-unsub-of-double": NotSubscribed,
    "relay-get-after-unsubscribe": NotSubscribed,
    "relay-get-dup": [b"dup"],
    "relay-get-empty": [],
    "relay-get-many": 9,
    "relay-get-not-subscribed": NotSubscribed,
    "relay-get-one": [b"hello from A"],
    "relay-get-overflow-1": 51,
    "relay-get-overflow-other-topic": [],
    "relay-get-own": [b"hello from A"],
    "relay-get-unencoded-topic": NotSubscribed,
}
#: The error of each recorded publication that failed; all others succeeded.
REFUSED_PUBLICATIONS = {
    "relay-publish-after-delete": NodeUnreachable,
    "relay-publish-bad-b64": NodeRefused,
    "relay-publish-bad-json": NodeRefused,
    "relay-publish-empty-payload": NodeRefused,
    "relay-publish-meta-65": NodeRefused,
    "relay-publish-meta-nopad": NodeRefused,
    "relay-publish-meta-urlsafe": NodeRefused,
    "relay-publish-missing-contenttopic": NodeRefused,
    "relay-publish-missing-payload": NodeRefused,
    "relay-publish-mixed-b64": NodeRefused,
    "relay-publish-no-peers": NodeUnreachable,
    "relay-publish-null": NodeRefused,
    "relay-publish-size-1000000": NodeUnreachable,
    "relay-publish-size-150000": NodeUnreachable,
    "relay-publish-size-160000": NodeUnreachable,
    "relay-publish-ts-float": NodeRefused,
    "relay-publish-ts-string": NodeRefused,
    "relay-publish-unencoded-topic": NodeUnreachable,
    "relay-publish-unsubscribed-topic": NodeUnreachable,
    "relay-publish-unsubscribed-topic-B": NodeUnreachable,
    "relay-publish-version-string": NodeRefused,
}
#: The error of each recorded subscription that failed; all others succeeded.
REFUSED_SUBSCRIPTIONS = {
    "light-relay-endpoints": NodeUnreachable,
    "relay-subscribe-bad-json": NodeRefused,
    "relay-subscribe-object": NodeRefused,
}


def load(name):
    return json.loads((RECORDINGS / f"{name}.json").read_text())


def names(prefix):
    return sorted(path.stem for path in RECORDINGS.glob(f"{prefix}*.json"))


PUBLICATIONS = names("relay-publish")
SUBSCRIPTIONS = [*names("relay-subscribe"), "light-relay-endpoints"]


@pytest.fixture
def replaying():
    """A node client whose every request gets a recorded response, and the server that notes the requests."""
    with serving() as server, WakuNode(server.url) as node:

        def replay(name):
            recorded = load(name)["response"]
            body = recorded["body"]
            is_text = recorded["headers"].get("Content-Type", "").startswith("text/") or body == ""
            content = (body if is_text else json.dumps(body)).encode()
            server.answers = [(recorded["status"], content) if recorded["status"] else b""]
            return node, server.requests

        yield replay


def test_every_recording_is_accounted_for():
    covered = {
        *READS,
        *PUBLICATIONS,
        *SUBSCRIPTIONS,
        "health",
        "debug-info",
        "admin-peers",
        "admin-peers-B",
        "light-admin-peers",
    }
    remainder = [name for name in names("") if name not in covered and not name.startswith(tuple(OTHER_ROUTES))]
    assert remainder == []
    assert all(names(prefix) for prefix in OTHER_ROUTES)
    assert covered <= set(names(""))
    assert set(REFUSED_PUBLICATIONS) <= set(PUBLICATIONS)
    assert set(REFUSED_SUBSCRIPTIONS) <= set(SUBSCRIPTIONS)


@pytest.mark.parametrize("name", READS)
def test_reads(replaying, name):
    node, requests = replaying(name)
    expected = READS[name]
    if not isinstance(expected, list | int):
        with pytest.raises(expected):
            node.read(SHARD)
        return
    second_read = node.read(SHARD)
    payloads = [message.payload for message in second_read.messages]
    assert expected in (payloads, len(payloads))
    assert second_read.malformed == 0
    if SHARD in (recorded := load(name)["request"]["path"].replace("%2F", "/")):
        method, path, *_ = requests[0]
        assert (method, path.replace("%2F", "/")) == ("GET", recorded)


@pytest.mark.parametrize("name", PUBLICATIONS)
def test_publications(replaying, name):
    node, _ = replaying(name)
    if error := REFUSED_PUBLICATIONS.get(name):
        with pytest.raises(error):
            node.publish(SHARD, MESSAGE)
    else:
        node.publish(SHARD, MESSAGE)


def test_a_publication_is_what_was_recorded(replaying):
    recorded = load("relay-publish")["request"]
    node, requests = replaying("relay-publish")
    node.publish(SHARD, decode_message(recorded["body"]))
    [(method, path, content_type, content)] = requests
    assert (method, path) == (recorded["method"], recorded["path"])
    assert content_type == recorded["headers"]["Content-Type"]
    assert json.loads(content) == recorded["body"]


@pytest.mark.parametrize("name", SUBSCRIPTIONS)
def test_subscriptions(replaying, name):
    recorded = load(name)["request"]
    node, requests = replaying(name)
    if error := REFUSED_SUBSCRIPTIONS.get(name):
        with pytest.raises(error):
            node.subscribe([SHARD])
        return
    topics = recorded["body"] or [SHARD]
    node.subscribe(topics)
    method, path, _, content = requests[0]
    assert (method, path) == (recorded["method"], recorded["path"])
    assert json.loads(content) == topics


@pytest.mark.parametrize("name", names("store-v3-data"))
def test_store_messages_have_their_timestamp_as_a_text(name):
    rows = load(name)["response"]["body"]["messages"]
    assert all(isinstance(row["message"]["timestamp"], str) for row in rows)
    assert all(decode_message(row["message"]).timestamp for row in rows)


@pytest.mark.parametrize(
    ("name", "counts"), [("admin-peers", [1, 0, 0]), ("admin-peers-B", [1, 1, 0]), ("light-admin-peers", [0, 0, 0])]
)
def test_relay_peers(name, counts):
    recorded = load(name)
    shards = [SHARD, "/waku/2/rs/16/64", "/waku/2/rs/16/0"]
    with serving() as server, WakuNode(server.url) as node:
        server.answers = [(404, b"404 page not found\n"), (200, json.dumps(recorded["response"]["body"]).encode())]
        assert node.relay_peers(shards) == dict(zip(shards, counts, strict=True))
        assert [path for _, path, *_ in server.requests] == ["/admin/v1/peers/relay", recorded["request"]["path"]]


def test_go_waku_health_ignores_its_health_route(replaying, monkeypatch):
    node, requests = replaying("health")
    monkeypatch.setattr(node, "check_alive", lambda: None)
    assert node.health() == NodeHealth(ready=True, state="ALIVE")
    assert requests[0][1] == "/health"
