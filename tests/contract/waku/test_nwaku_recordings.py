"""Every recorded answer of a nwaku 0.38.1 through our clients of relay, health and Store; light clients: test_light."""

import json
from contextlib import contextmanager

import pytest

from support import recordings
from support.answering import serving
from support.go_waku import SHARD
from support.nwaku import AREA
from wakupush.model.waku_message import WakuMessage
from wakupush.waku.errors import NodeError, NodeRefused, NodeUnreachable, NodeUnreadable, NotSubscribed
from wakupush.waku.node import NodeHealth, WakuNode
from wakupush.waku.store import Store
from wakupush.waku.store_codec import Query

MESSAGE = WakuMessage(payload=b"x", content_topic="/waku/1/0x1a2b3c4d/rfc26")
QUERY = Query(pubsub_topic=SHARD, content_topics=(), start=1, end=2)
EMPTY_PAGE = {"requestId": "", "statusCode": 200, "statusDesc": "OK", "messages": []}


def recordings_like(*beginnings):
    names = sorted(name for name in recordings.names(AREA) if name.startswith(beginnings))
    return pytest.mark.parametrize("name", names)


def response(recording):
    return recording.status, recording.text.encode()


@contextmanager
def answering_client(kind, *answers):
    """A client whose requests get some answers in turn."""
    with serving() as server, kind(server.url) as client:
        server.answers = [*answers]
        yield client


def error_of(recording):
    """Return the error that an answer means for a message, None if it was taken."""
    if recording.status == 200:
        return None
    is_judged = recording.status == 400 and "not subscribed" not in recording.answer
    return NodeRefused if is_judged else NodeUnreachable


@recordings_like("relay-get", "light-relay-get")
def test_reads(name):
    recording = recordings.load(AREA, name)
    with answering_client(WakuNode, response(recording)) as node:
        if recording.status == 404:
            with pytest.raises(NotSubscribed):
                node.read(SHARD)
            return
        second_read = node.read(SHARD)
    assert (len(second_read.messages), second_read.malformed) == (len(recording.answer), 0)


@recordings_like("relay-publish", "light-relay-publish")
def test_publications(name):
    recording = recordings.load(AREA, name)
    with answering_client(WakuNode, response(recording)) as node:
        if error := error_of(recording):
            with pytest.raises(error):
                node.publish(SHARD, MESSAGE)
        else:
            node.publish(SHARD, MESSAGE)


@recordings_like("relay-subscribe", "light-relay-subscribe")
def test_subscriptions(name):
    recording = recordings.load(AREA, name)
    with answering_client(WakuNode, response(recording)) as node:
        if error := error_of(recording):
            with pytest.raises(error):
                node.subscribe([SHARD])
        else:
            node.subscribe([SHARD])


@recordings_like("health", "light-health")
def test_health(name):
    """READY is not enough: so says a node without any peer, or a light node without a service node."""
    recording = recordings.load(AREA, name)
    info = response(recordings.load(AREA, "debug-info"))
    states = {"health": "READY", "light-health-connected": "READY", "health-head": "ALIVE"}
    state = states.get(name, "Disconnected")
    with answering_client(WakuNode, response(recording), info) as node:
        assert node.health() == NodeHealth(ready=state != "Disconnected", state=state)


def test_relay_peers():
    recording = recordings.load(AREA, "admin-peers-relay")
    shards = [SHARD, "/waku/2/rs/16/64", "/waku/2/rs/16/0", "/waku/2/rs/16/1"]
    with answering_client(WakuNode, response(recording)) as node:
        assert node.relay_peers(shards) == dict(zip(shards, [1, 1, 0, 0], strict=True))


@pytest.mark.parametrize("name", ["not-found", "light-relay-get"])
def test_relay_peers_may_be_unknown(name):
    with answering_client(WakuNode, response(recordings.load(AREA, name))) as node:
        assert node.relay_peers([SHARD]) == {}


@pytest.mark.parametrize("body", [b'[{"shard": 32}]', b"{}x", b'"x"', b'[["shard"]]'])
def test_what_is_no_list_of_peers(body):
    with answering_client(WakuNode, (200, body)) as node, pytest.raises(NodeUnreadable):
        node.relay_peers([SHARD])


@recordings_like("store-v3")
def test_store_pages(name):
    """A page of a walk; the status in the body counts, whatever HTTP says."""
    recording = recordings.load(AREA, name)
    first, page = (200, json.dumps(EMPTY_PAGE).encode()), response(recording)
    with answering_client(Store, first, page, first) as store:
        walk = store.walk(QUERY, with_messages=False)
        if recording.status != 200 or recording.answer["statusCode"] != 200:
            with pytest.raises(NodeError):
                next(walk)
            return
        first_page = next(walk)
    rows = recording.answer["messages"]
    # Of other shards and times are those that were not asked for, and whose hash is another on our shard.
    assert len(first_page.messages) + first_page.malformed == len(rows)
    without_data = [bytes.fromhex(row["messageHash"][2:]) for row in rows if "message" not in row]
    assert [entry.hash for entry in first_page.messages if entry.message is None] == without_data


@recordings_like("store-v3-data", "store-v3-desc", "store-v3-time-range")
def test_store_messages_have_our_hash(name):
    rows = recordings.load(AREA, name).answer["messages"]
    query = Query(pubsub_topic=SHARD, content_topics=(), start=1, end=2**62)
    page = 200, json.dumps({**EMPTY_PAGE, "messages": rows}).encode()
    with answering_client(Store, page) as store:
        [fetched_page] = store.fetch(query, [bytes(32)])
    assert [f"0x{entry.hash.hex()}" for entry in fetched_page.messages] == [row["messageHash"] for row in rows]
    assert [entry.message.timestamp for entry in fetched_page.messages] == [row["message"]["timestamp"] for row in rows]
