"""The client of Stores against the archives of the development nodes, of a real go-waku, and against recordings."""

import base64
import os
import time
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from support import recordings
from support.answering import serving
from support.real_go_waku import BINARY, real_go_waku
from wakupush.devnet.node import go_waku, nwaku
from wakupush.devnet.node.go_waku_state import GoWakuNode
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings
from wakupush.devnet.processes import wait_until
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash
from wakupush.waku.errors import NodeError, NodeUnreachable, NotSubscribed
from wakupush.waku.node import WakuNode as NodeClient
from wakupush.waku.store import Store
from wakupush.waku.store_codec import Query, decode_v1

SHARD, OTHER = "/waku/2/rs/16/32", "/waku/2/rs/16/64"
TOPIC, SECOND, FOREIGN = "/waku/1/0x1a2b3c4d/rfc26", "/waku/1/0x00000001/rfc26", "/waku/1/0xffffffff/rfc26"
SETTINGS = NodeSettings(shards=(SHARD, OTHER), archive_window=None)
APPS = {
    "nwaku": lambda: nwaku.create_app(DevelopmentNode(SETTINGS)),
    "go-waku": lambda: go_waku.create_app(GoWakuNode(SETTINGS)),
}


@pytest.fixture(params=[*APPS, pytest.param("real go-waku", marks=pytest.mark.real)])
def manners(request):
    if request.param == "real go-waku" and not BINARY:
        pytest.skip("WAKUPUSH_TEST_WAKU does not name a go-waku binary")
    return request.param


@pytest.fixture
def url(manners, serve, tmp_path):
    if manners in APPS:
        yield str(serve(APPS[manners]()).base_url)
    else:
        store = ("--store", "--store-message-db-url=sqlite3://store.db")
        with real_go_waku(tmp_path, *store, "--max-msg-size=1024KiB") as address:
            yield address


@pytest.fixture
def store(url):
    with Store(url) as client:
        yield client


@pytest.fixture
def node(url):
    with NodeClient(url) as client:
        yield client


def message(timestamp, content_topic=TOPIC, **fields):
    return WakuMessage(payload=os.urandom(40), content_topic=content_topic, timestamp=timestamp, **fields)


def query(start, end, *content_topics, shard=SHARD):
    return Query(pubsub_topic=shard, content_topics=content_topics, start=start, end=end)


def archived_messages(store, question, *, with_messages=False):
    return [entry for page in store.walk(question, with_messages=with_messages) for entry in page.messages]


def publish(store, node, messages, shard=SHARD):
    """Publish, and wait until everything is archived."""
    for each in messages:
        node.publish(shard, each)
    everything = query(1, time.time_ns() + 10**12, shard=shard)
    wait_until(
        lambda: len(archived_messages(store, everything)) >= len(messages), timeout=120, what="everything is archived"
    )


def hashes(messages, shard=SHARD):
    return {message_hash(shard, each) for each in messages}


def test_a_walk_finds_what_is_asked_for(store, node, manners):
    now = time.time_ns()
    mine = [message(now + 1), message(now + 2, SECOND), message(now + 3, version=0)]
    late = message(now + 10)
    foreign = message(now + 2, FOREIGN)
    publish(store, node, [*mine, late, foreign])
    node.publish(OTHER, message(now + 2))
    node.publish(SHARD, message(now + 2, ephemeral=True))
    question = query(now + 1, now + 9, TOPIC, SECOND)
    results = archived_messages(store, question)
    assert {entry.hash for entry in results} == hashes(mine)
    assert [entry.message for entry in archived_messages(store, question, with_messages=True)] == mine
    assert {entry.hash for entry in archived_messages(store, query(now + 1, now + 9))} == hashes([*mine, foreign])
    if manners == "nwaku":
        assert {entry.message for entry in results} == {None}
        pages = store.fetch(question, [entry.hash for entry in results] + [bytes(32)])
        assert {entry.message for page in pages for entry in page.messages} == set(mine)
    else:
        assert [entry.message for entry in results] == mine  # a go-waku has no other way


def test_large_messages_arrive_live_and_from_the_store(store, node):
    """Clients of the network send segments only above 786,432 bytes."""
    now = time.time_ns()
    messages = [WakuMessage(payload=os.urandom(787_100), content_topic=TOPIC, timestamp=now + n) for n in range(20)]
    with suppress(NotSubscribed):
        node.read(SHARD)
    node.subscribe([SHARD])
    publish(store, node, messages)
    assert {message.timestamp for message in node.read(SHARD).messages} == {each.timestamp for each in messages}
    question = query(now, now + 20, TOPIC)
    assert [entry.message for entry in archived_messages(store, question, with_messages=True)] == messages


def test_more_messages_of_one_time_than_a_page(store, node):
    now = time.time_ns()
    messages = [message(now) for _ in range(230)] + [message(now + 1) for _ in range(30)]
    publish(store, node, messages)
    assert {entry.hash for entry in archived_messages(store, query(now, now + 1, TOPIC))} == hashes(messages)
    assert len(archived_messages(store, query(now, now, TOPIC))) == 230


def test_messages_without_a_timestamp_hide_no_others(store, node, manners):
    """The trap of go-waku's Store v1: they fill the first pages, and the walk goes on from when they arrived."""
    start = time.time_ns() - 10**11
    early = [message(start + number) for number in range(5)]
    timeless = [message(0) for _ in range(120)]
    publish(store, node, [*early, *timeless])
    found_hashes = {entry.hash for entry in archived_messages(store, query(start, time.time_ns(), TOPIC))}
    assert hashes(early) <= found_hashes
    if manners != "nwaku":  # a nwaku gives them a time before it relays them
        assert found_hashes == hashes([*early, *timeless])


def test_the_hash_of_a_message_with_meta(store, node, manners):
    now = time.time_ns()
    own_message = message(now, meta=b"meta")
    publish(store, node, [own_message])
    [result] = archived_messages(store, query(now, now, TOPIC))
    assert (result.hash == message_hash(SHARD, own_message)) is (manners == "nwaku")  # Store v1 leaves meta out


def test_a_node_without_a_store(serve):
    app = nwaku.create_app(DevelopmentNode(SETTINGS))
    app.router.routes[:] = [route for route in app.router.routes if "store" not in route.path]
    with Store(str(serve(app).base_url)) as store, pytest.raises(NodeError):
        archived_messages(store, query(1, 2))


@pytest.mark.parametrize("manners", APPS)
@pytest.mark.parametrize(
    "fault",
    [{"kind": "status", "status": 500}, {"kind": "close"}, {"kind": "garbage"}, {"kind": "status", "status": 404}],
)
def test_a_page_that_fails_ends_the_walk_with_a_name(store, node, url, manners, fault):
    now = time.time_ns()
    publish(store, node, [message(now + number) for number in range(150)])
    pages = store.walk(query(now, now + 200, TOPIC), with_messages=False)
    assert len(next(pages).messages) == (100 if manners == "nwaku" else 16)  # a go-waku always adds the messages
    httpx2.post(f"{url}/dev/faults", json={"path": "/store", "times": 1, **fault}).raise_for_status()
    with pytest.raises(NodeError):
        next(pages)
    assert len(archived_messages(store, query(now, now + 200, TOPIC))) == 150


@pytest.mark.parametrize("manners", ["nwaku"])
def test_a_node_that_does_not_answer(url):
    httpx2.post(f"{url}/dev/faults", json={"path": "/store", "kind": "hang"}).raise_for_status()
    with Store(url, timeout=0.2) as hasty, pytest.raises(NodeUnreachable):
        archived_messages(hasty, query(1, 2))
    httpx2.delete(f"{url}/dev/faults")


# --- recordings of a go-waku ---


def test_the_cursor_goes_back_as_recorded():
    first, second = (recordings.load("waku-rest", f"store-v1-page{number}") for number in (1, 2))
    page, cursor = decode_v1(first.text.encode(), SHARD)
    assert [base64.b64encode(entry.message.payload).decode() for entry in page.messages] == [
        each["payload"] for each in first.answer["messages"]
    ]
    parameters = {name: values[0] for name, values in parse_qs(urlsplit(second.path).query).items()}
    assert cursor is not None
    assert cursor.parameters.items() <= parameters.items()
    assert not cursor.is_timeless


PEER = "/ip4/127.0.0.1/tcp/60109/p2p/16Uiu2HAmFZe8R26tSN3RASLddkGsDiE75QFvqx6ikPqLhVQ5ZUiN"


def sent_parameters(request):
    """Return the parameters of a request, those that do not depend on a test."""
    parameters = parse_qs(urlsplit(request).query)
    return {name: parameters[name] for name in ("peerAddr", "cursor", "hashes") if name in parameters}


def test_a_go_waku_asks_a_peer_by_its_store_v3():
    """Its own words: snake_case, hashes in base64, which go back in the URL-safe alphabet."""
    pages = [recordings.load("waku-rest", f"store-v3-data-page{number}") for number in (1, 2)]
    hashes_only, by_hash = (recordings.load("waku-rest", f"store-v3-{name}") for name in ("last-page", "by-hash"))
    with serving() as server, Store(server.url, peer=PEER) as store:
        server.answers = [(each.status, each.text.encode()) for each in (*pages, hashes_only, by_hash)]
        everything = query(1, 2**62, TOPIC)
        walk = store.walk(everything, with_messages=True)
        results = [entry for _, page in zip(pages, walk, strict=False) for entry in page.messages]
        rows = [row for page in pages for row in page.answer["messages"]]
        assert [base64.b64encode(entry.message.payload).decode() for entry in results] == [
            row["message"]["payload"] for row in rows
        ]
        assert [base64.b64encode(entry.hash).decode() for entry in results] == [row["message_hash"] for row in rows]
        hashes = archived_messages(store, everything)
        assert {entry.message for entry in hashes} == {None}
        assert {entry.hash for entry in results} <= {entry.hash for entry in hashes}
        [page] = store.fetch(everything, [results[0].hash])
        assert page.messages == (results[0],)
        request_parameters = [sent_parameters(path) for _, path, *_ in server.requests]
    assert request_parameters == [sent_parameters(each.path) for each in (*pages, hashes_only, by_hash)]


@pytest.mark.parametrize(
    ("area", "name"),
    [
        *(("waku-rest", name) for name in ("store-v3-unreachable-peer", "store-v3-bad-peer", "store-v3-local")),
        *(("nwaku-rest", name) for name in ("store-v3-unreachable-peer", "store-v3-bad-peer", "store-v3-not-mounted")),
    ],
)
def test_a_peer_that_cannot_be_asked_fails_the_walk(area, name):
    """A nwaku answers 200 then, with the status in the body."""
    recording = recordings.load(area, name)
    with serving((recording.status, recording.text.encode())) as server, Store(server.url, peer=PEER) as store:
        with pytest.raises(NodeError):
            archived_messages(store, query(1, 2, TOPIC))
        assert [urlsplit(path).path for _, path, *_ in server.requests] == ["/store/v3/messages"]


def test_a_nwaku_asks_a_peer(serve):
    there = serve(nwaku.create_app(DevelopmentNode(SETTINGS)))
    here = serve(nwaku.create_app(DevelopmentNode(SETTINGS)))
    now = time.time_ns()
    messages = [message(now + number) for number in range(130)]
    with NodeClient(str(there.base_url)) as node, Store(str(there.base_url)) as its_store:
        publish(its_store, node, messages)
    peer = PEER.replace("60109", str(there.base_url.port))
    with Store(str(here.base_url), peer=peer) as store, Store(str(here.base_url)) as own:
        results = archived_messages(store, query(now, now + 200, TOPIC))
        assert {entry.hash for entry in results} == hashes(messages)
        pages = store.fetch(query(now, now + 200, TOPIC), [entry.hash for entry in results])
        assert sum(len(page.messages) for page in pages) == 130
        assert archived_messages(own, query(now, now + 200, TOPIC)) == []


@pytest.mark.parametrize("name", ["store-v3-local", "store-v3-against-go-waku-store", "store-v3-no-match"])
def test_a_go_waku_is_asked_by_its_store_v1(name):
    recorded = recordings.load("waku-rest", name), recordings.load("waku-rest", "store-v1-empty")
    with serving() as server, Store(server.url) as store:
        server.answers = [(each.status, each.text.encode()) for each in recorded]
        assert archived_messages(store, query(1, 2, TOPIC)) == []
        paths = [urlsplit(path).path for _, path, *_ in server.requests]
    assert paths == ["/store/v3/messages", "/store/v1/messages"]
