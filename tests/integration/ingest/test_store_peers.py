"""Store peers: messages that went over the network while our node was away are in other people's Stores."""

import math
import time
from threading import Event, Thread

import pytest

from integration.ingest.test_once import run_once
from support.devnet import serving
from support.reconciling import NOWHERE, SHARD, Bench, ago, hashes, turn
from wakupush.devnet.processes import free_port
from wakupush.ingest.reconcile.peers import Pace, PeerStore
from wakupush.waku.errors import NodeUnreachable
from wakupush.waku.store import Store
from wakupush.waku.store_codec import Query

PEER_ID = "16Uiu2HAmPeerPeerPeerPeerPeerPeerPeerPeerPeerPeerPee"
#: Seconds of the outage of our node.
OUTAGE = 300.0


def address(url):
    return f"/ip4/127.0.0.1/tcp/{url.rpartition(':')[2]}/p2p/{PEER_ID}"


@pytest.fixture(scope="session")
def node_url(tmp_path_factory, forkserver):
    """Our node: a nwaku."""
    options = ("--shard", SHARD, "--archive-window", "any")
    with serving("waku", tmp_path_factory.mktemp("node") / "log", *options, forkserver=forkserver) as (url, _):
        yield url


@pytest.fixture(scope="session")
def peer_url(tmp_path_factory, forkserver):
    """Somebody else's node, which ours is no peer of."""
    options = ("--shard", SHARD, "--archive-window", "any")
    with serving("waku", tmp_path_factory.mktemp("peer") / "log", *options, forkserver=forkserver) as (url, _):
        yield url


@pytest.fixture
def elsewhere(bench, peer_url):
    """Sends to the peer alone."""
    there = Bench.__new__(Bench)
    there.__dict__.update(vars(bench), node_url=peer_url)
    return there.send


@pytest.fixture
def of_peer(bench, peer_url):
    """The walk for registrations at the peer."""
    reconciliation, *_ = bench.walkers(store_peers=(address(peer_url),), store_peer_pause=0.01)
    yield next(
        walk for walk in reconciliation.thorough if walk.is_store_peer and walk.walker.kind.name == "registration"
    )
    reconciliation.close()


def test_messages_of_an_outage_come_from_a_peer(bench, elsewhere, of_peer):
    """After five minutes without our node the watermark is where it was before."""
    of_peer.walker.settle(SHARD, ago(OUTAGE), None)
    of_peer._progress[SHARD].whole_due = math.inf
    entries = elsewhere(ago=200) + elsewhere(ago=1)
    assert turn(of_peer)
    assert bench.claimed_hashes() == hashes(entries)
    assert bench.queued_hashes() == {"registration": 1}
    assert bench.watermark(of_peer) == entries[0].message.timestamp - 1
    bench.handle(entries)


def test_a_whole_window_of_a_peer_is_walked(bench, elsewhere, of_peer):
    entries = elsewhere(ago=80_000) + elsewhere(ago=5000, count=130, apart=0.5)
    slices = 0
    while turn(of_peer):
        slices += 1
    assert bench.claimed_hashes() == hashes(entries)
    assert slices <= 25  # of an hour each


def test_a_peer_is_asked_through_another_node_after_a_failure(bench, elsewhere, peer_url):
    settings = bench.settings(store_peers=(address(peer_url),), store_peer_pause=0.01)
    several = settings.model_copy(update={"waku": settings.waku.model_copy(update={"url": (NOWHERE, bench.node_url)})})
    bench.settings = lambda **_: several
    reconciliation, *_ = bench.walkers()
    of_peer = next(
        walk for walk in reconciliation.thorough if walk.is_store_peer and walk.walker.kind.name == "registration"
    )
    of_peer.walker.settle(SHARD, ago(OUTAGE), None)
    [entry] = elsewhere(ago=200)
    assert turn(of_peer) is None
    assert turn(of_peer)
    assert bench.claimed_hashes() == {entry.hash}
    reconciliation.close()


def test_peer_is_asked_by_another_node_after_a_failed_fetch(bench, elsewhere, peer_url):
    ways = [Store(url, peer=address(peer_url)) for url in (NOWHERE, bench.node_url)]
    [entry] = elsewhere(ago=200)
    question = Query(pubsub_topic=SHARD, content_topics=(bench.personal,), start=1, end=time.time_ns())
    peer = PeerStore(ways)
    with pytest.raises(NodeUnreachable):
        list(peer.fetch(question, [entry.hash]))
    [page] = peer.fetch(question, [entry.hash])
    assert [row.hash for row in page.messages] == [entry.hash]
    peer.close()


def test_a_dead_peer_fails_its_own_walks_alone(bench):
    reconciliation, _, recent, _ = bench.walkers(store_peers=(address(f"http://127.0.0.1:{free_port()}"),))
    [entry] = bench.send()
    of_peer = next(walk for walk in reconciliation.thorough if walk.is_store_peer)
    assert turn(of_peer) is None
    assert turn(recent).missing == 1
    assert bench.claimed_hashes() == {entry.hash}
    assert set(reconciliation.ready()) == set(reconciliation.audit.stores)
    reconciliation.close()


def test_once_asks_peers_too(bench, elsewhere, peer_url):
    elsewhere(ago=5000)
    result = run_once(bench, "--once", WAKUPUSH_RECONCILE__STORE_PEERS=f'["{address(peer_url)}"]')
    assert result.returncode == 0, result.stderr
    name = peer_url.removeprefix("http://")
    assert f"{name} {SHARD} registration: 1 examined, 1 missing, 1 enqueued" in result.stdout
    assert f"{name} {SHARD} dispatch: 0 examined" in result.stdout
    assert f"{name} {SHARD} query" not in result.stdout


def test_requests_to_a_peer_keep_their_distance():
    pace = Pace(0.05, Event())
    start_time, times = time.monotonic(), []

    def ask():
        for _ in range(3):
            pace.wait()
            times.append(time.monotonic() - start_time)

    threads = [Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(at >= number * 0.05 for number, at in enumerate(sorted(times)))
    stop = Event()
    stop.set()
    forever = Pace(1e6, stop)
    forever.wait()
    forever.wait()  # the process is to end


def test_each_request_to_a_peer_waits_its_turn(bench, elsewhere, of_peer, monkeypatch):
    """Pages of hashes and fetches of messages, of all walks of a peer."""
    elsewhere(ago=200, count=40)
    of_peer.walker.settle(SHARD, ago(OUTAGE), None)
    waits = []
    wait = Pace.wait
    monkeypatch.setattr(Pace, "wait", lambda pace: (waits.append(pace), wait(pace))[1])
    for store in of_peer.walker.store._stores:
        monkeypatch.setattr(store, "_pace", store._pace.__self__.wait)
    assert turn(of_peer)
    assert len(waits) == 1 + 3  # a page of hashes, and 40 messages by 16
    assert len(bench.claimed_hashes()) == 40


def test_a_walk_of_a_peer_turns_with_each_request(elsewhere, of_peer, monkeypatch):
    """Else it counts as stuck where each of its requests waits for those of several walks."""
    elsewhere(ago=200, count=40)
    of_peer.walker.settle(SHARD, ago(OUTAGE), None)
    turns = []
    for store in of_peer.walker.store._stores:
        monkeypatch.setattr(store, "_pace", lambda: turns.append(of_peer.walker.turned_at))
    assert turn(of_peer)
    assert len(turns) == 1 + 3
    assert turns == sorted(set(turns))
