"""Reconciliation on a real Postgres, a real Redis and development nodes."""

import base64
import json
import math
import os
import pty
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Event, Thread

import httpx2
import pytest
from psycopg.conninfo import make_conninfo
from redis import Redis
from redis import TimeoutError as TimedOut
from structlog.testing import capture_logs

from ingest.reconcile import thorough, walk
from ingest.reconcile.process import Reconciliation
from ingest.reconcile.rest import Rest
from ingest.reconcile.thorough import Thorough
from wakupush.devnet.parts.processes import Process, answers_http, free_port, wait_until
from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH, QUEUES
from wakupush.model.roles import Role
from wakupush.model.waku_message import WakuMessage
from wakupush.model.walks import Track
from wakupush.postgres import ledger, reconciliation
from wakupush.protocol import topics
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import watched
from wakupush.redis.sending import send_entries
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import PostgresSettings, ReconcileSettings, RedisSettings, Settings, WakuSettings
from wakupush.waku.codec import encode_message

SHARD = "/waku/2/rs/16/32"
FOREIGN = "/waku/1/0x12345678/rfc26"
NOWHERE = "http://127.0.0.1:1"
#: Seconds of the window: 20 slices.
WINDOW = 6000.0


@pytest.fixture(scope="module", params=["nwaku", "go-waku"])
def node_url(request, tmp_path_factory):
    url = f"http://127.0.0.1:{(port := free_port())}"
    options = ["--manners", request.param, "--shard", SHARD, "--archive-window", "any"]
    command = [sys.executable, "-m", "wakupush.devnet.serve", "waku", "--port", str(port), *options]
    log = tmp_path_factory.mktemp("node") / "log"
    with Process("node", command, log=log, ready=lambda: answers_http(f"{url}/debug/v1/info")):
        yield url


@pytest.fixture
def redis(redis_server):
    with Redis.from_url(redis_server.url) as client:
        client.flushall()
        watched.mark_complete(client, watched.begin_filling(client))
        yield client


class Bench:
    """A server's own topics, what is sent to them, and what reconcile makes of it."""

    def __init__(self, node_url, dsn, redis_server, redis, connection):
        self.server = PrivateKey.generate().public_key
        self.personal, self.partitioned = topics.server_content_topics(self.server)
        self.node_url, self.dsn, self.redis, self.connection = node_url, dsn, redis, connection
        self.redis_url = redis_server.url
        self.stop = Event()

    def settings(self, *, dsn=None, redis_url=None, stores=(), **reconcile):
        return Settings(
            public_key=str(self.server),
            waku=WakuSettings(url=self.node_url, shards=(SHARD,), timeout=3),
            redis=RedisSettings(url=redis_url or self.redis_url, timeout=1),
            postgres=PostgresSettings(dsn=dsn or make_conninfo(self.dsn, user=Role.RECONCILE), timeout=1),
            reconcile=ReconcileSettings(stores=stores, **reconcile),
        )

    def walkers(self, **options):
        opened = Reconciliation.open(self.settings(**options), self.stop)
        return opened, *opened.recent

    def send(self, content_topic=None, *, ago=1.0, count=1, apart=0.0):
        """Send messages, the last so many seconds ago; what peers relay to the node comes a thousand at a time."""
        last = time.time_ns() - int(ago * 10**9)
        sent = []
        for number in range(count):
            stamp = last - int((count - 1 - number) * apart * 10**9)
            message = WakuMessage(
                payload=os.urandom(400), content_topic=content_topic or self.personal, timestamp=stamp
            )
            sent.append(Entry(SHARD, message_hash(SHARD, message), stamp / 1e9, message))
        for start in range(0, count, 1000):
            messages = [encode_message(entry.message) for entry in sent[start : start + 1000]]
            body = {"pubsubTopic": SHARD, "messages": messages}
            httpx2.post(f"{self.node_url}/dev/messages", json=body, timeout=60).raise_for_status()
        return sent

    def queued(self):
        return {name: self.redis.llen(name) for name in QUEUES if self.redis.llen(name)}

    def claimed(self):
        return {key.removeprefix(b"wakupush:claim:") for key in self.redis.keys("wakupush:claim:*")}

    def handle(self, entries):
        with self.connection.transaction():
            ledger.add(self.connection, entries)

    def watermark(self, recent):
        return reconciliation.watermark(self.connection, recent.walker.track(SHARD))


@pytest.fixture
def bench(node_url, dsn, redis_server, redis, connection):
    bench = Bench(node_url, dsn, redis_server, redis, connection)
    yield bench
    bench.stop.set()


@pytest.fixture
def opened(bench):
    found, queries, registrations, requests = bench.walkers()
    yield queries, registrations, requests
    found.close()


@pytest.fixture
def whole(bench):
    """What walks the whole window for registrations, and what looks for recent ones."""
    found, _, registrations, _ = bench.walkers(window=WINDOW)
    yield found.thorough[0], registrations
    found.close()


def walked(recent, seconds):
    """Walk from so many seconds ago to now; None if it failed."""
    return recent.walker.tried(SHARD, lambda: recent.walker.walk(SHARD, ago(seconds), time.time()))


def looked_back(recent):
    return recent.walker.tried(SHARD, lambda: recent.look_back(SHARD))


def turned(each):
    return each.walker.tried(SHARD, lambda: each.turn(SHARD))


def hashes(entries):
    return {entry.hash for entry in entries}


def ago(seconds):
    return time.time() - seconds


# --- the subtraction ---


def test_what_is_missing(connection):
    entries = [
        Entry(SHARD, os.urandom(32), 0.0, WakuMessage(payload=b"x", content_topic="", timestamp=at)) for at in range(6)
    ]
    new, done, quarantined, in_work, lost, absurd = entries
    absurd = replace(absurd, message=replace(absurd.message, timestamp=-(2**63)))
    with connection.transaction():
        ledger.add(connection, [done, absurd])
        ledger.quarantine(connection, DISPATCH, quarantined, reason="X", attempts=3, owner=None)
        ledger.count_attempt(connection, in_work)
        ledger.count_attempt(connection, lost)
        connection.execute(
            "UPDATE message_attempts SET updated_at = now() - interval '1 hour' WHERE message_hash = %s", [lost.hash]
        )
    found = reconciliation.missing(connection, [entry.hash for entry in [*entries, new]])
    assert found == {new.hash: False, in_work.hash: True, lost.hash: False}
    assert reconciliation.missing(connection, []) == {}


def test_the_subtraction_asks_the_indexes(connection):
    sql = reconciliation._SQL["missing"]
    with connection.transaction():
        connection.execute("SET LOCAL enable_seqscan = off")
        plan = connection.execute(f"EXPLAIN {sql}", {"hashes": [os.urandom(32)] * 100, "in_work": 1}).fetchall()
    assert "Seq Scan on ledger" not in str(plan)


def test_a_watermark_moves_forward_unless_it_is_beyond_what_clocks_can_say(connection):
    track = Track("node:1", SHARD, "registration")
    assert reconciliation.watermark(connection, track) is None
    assert reconciliation.advance(connection, track, 100, most=100) == 100
    assert reconciliation.advance(connection, track, 50, most=100) == 100
    assert reconciliation.advance(connection, replace(track, pubsub_topic="other"), 7, most=100) == 7
    assert reconciliation.watermark(connection, track) == 100
    assert reconciliation.advance(connection, track, 60, most=99) == 60
    assert reconciliation.watermark(connection, track) == 60


# --- walks ---


def test_what_is_missing_is_enqueued_and_claimed(bench, opened):
    _, registrations, requests = opened
    done, lost, push = bench.send(ago=2)[0], bench.send(ago=5)[0], bench.send(bench.partitioned)[0]
    bench.send(FOREIGN)
    bench.handle([done])
    tally = walked(registrations, 60)
    assert (tally.examined, tally.missing, tally.enqueued, tally.malformed) == (2, 1, 1, 0)
    assert (walked(requests, 60).examined, bench.queued()) == (1, {"registration": 1, "dispatch": 1})
    assert bench.claimed() == {lost.hash, push.hash}
    again = walked(registrations, 60)
    assert (again.missing, again.enqueued) == (1, 0)  # somebody has it, and it is not done yet


def test_the_watermark_passes_what_is_done_and_nothing_else(bench, opened):
    _, own, _ = opened
    before = time.time_ns()
    own.walker.settle(SHARD, ago(10), None)
    assert looked_back(own) is not None
    assert bench.watermark(own) >= before
    [lost] = bench.send(ago=-0.2)
    time.sleep(0.3)  # its time has come
    looked_back(own)
    assert bench.watermark(own) == lost.message.timestamp - 1
    bench.handle([lost])
    looked_back(own)
    assert bench.watermark(own) > lost.message.timestamp


def test_a_look_begins_at_the_last_one_and_twice_in_an_overlap_before_the_watermark(opened):
    """So that a short pause does not read all of the overlap each time."""
    _, own, _ = opened
    own.walker.settle(SHARD, ago(30), None)
    assert turned(own).since == pytest.approx(ago(30 + 120), abs=2)
    assert turned(own).since == pytest.approx(ago(5), abs=2)
    assert turned(own).since == pytest.approx(ago(5), abs=2)
    own._back_due.clear()
    assert turned(own).since == pytest.approx(ago(120), abs=3)
    own._ended[SHARD] = ago(5000)  # it failed for long
    assert turned(own).since == pytest.approx(ago(120), abs=3)


def test_what_came_late_is_found_in_the_whole_window_and_looked_for_until_it_is_handled(bench, whole):
    thorough_, own = whole
    own.walker.settle(SHARD, ago(1), None)
    thorough_._whole_due[SHARD] = math.inf
    [late] = bench.send(ago=4000)  # its sender's clock was behind
    assert looked_back(own).missing == 0
    assert not turned(thorough_)
    thorough_._whole_due[SHARD] = 0.0
    while turned(thorough_):
        pass
    assert bench.claimed() == {late.hash}
    bench.redis.flushall()  # and lost again
    watched.mark_complete(bench.redis, watched.begin_filling(bench.redis))
    assert not turned(thorough_)
    since, due = thorough_._loose[SHARD]
    assert since < late.seen
    assert due > time.time() + 100  # when the claim is over
    thorough_._loose[SHARD] = (since, 0.0)
    while turned(thorough_):
        pass
    assert bench.claimed() == {late.hash}


def test_a_watermark_of_a_clock_that_was_ahead_says_nothing(bench, whole):
    thorough_, own = whole
    own.walker.settle(SHARD, ago(600), None)
    ahead = time.time_ns() + 3600 * 10**9
    reconciliation.advance(bench.connection, own.walker.track(SHARD), ahead, most=ahead)
    bench.send(ago=400)
    assert looked_back(own).missing == 0
    while turned(thorough_):
        pass
    assert len(bench.claimed()) == 1
    assert bench.watermark(own) < time.time_ns()


def test_the_window_is_walked_in_slices_and_the_watermark_follows(bench, whole):
    thorough_, own = whole
    sent = bench.send(ago=5500, count=2) + bench.send(ago=3000) + bench.send(ago=1)
    bench.handle(sent[:2])
    assert looked_back(own).examined == 1
    assert bench.watermark(own) is None  # there is all that lies before
    at = []
    while turned(thorough_):
        at.append(bench.watermark(own))
    assert at == sorted(at)
    assert len(set(at)) > 5
    assert at[-1] == sent[2].message.timestamp - 1
    assert bench.claimed() == hashes(sent[2:])
    bench.handle(sent)
    thorough_._catch_up_due.clear()
    while turned(thorough_):
        pass
    looked_back(own)
    assert bench.watermark(own) > sent[3].message.timestamp


def test_the_whole_window_is_walked_again_when_it_is_due_and_goes_on_after_a_restart(whole):
    thorough_, own = whole
    own.walker.settle(SHARD, ago(1), None)
    for _ in range(5):
        assert turned(thorough_)
    at = thorough_._whole[SHARD].at
    assert at == pytest.approx(ago(WINDOW - 5 * 300), abs=60)
    second = Thorough(walker=thorough_.walker, shards=(SHARD,), settings=thorough_.settings)
    assert turned(second)
    assert second._whole[SHARD].at == pytest.approx(at + 300, abs=1)
    while turned(second):
        pass
    assert not turned(second)
    assert second._whole_due[SHARD] == pytest.approx(time.time() + 3600, abs=60)
    assert turned(Thorough(walker=thorough_.walker, shards=(SHARD,), settings=thorough_.settings))  # and a third anew


def test_a_stretch_with_too_many_pages_is_cut_until_it_fits(bench, whole, monkeypatch):
    """It failed each time, and what came after it was never reached."""
    thorough_, own = whole
    monkeypatch.setattr(thorough, "SLICE_PAGES", 2)
    own.walker.settle(SHARD, ago(1), None)
    sent = [each for second in range(10) for each in bench.send(ago=1000 + 10 * second, count=90)]
    sent += bench.send(ago=900)
    failed = []
    monkeypatch.setattr(walk.log, "warning", lambda *_, **facts: failed.append(facts), raising=False)
    while turned(thorough_):
        pass
    assert bench.claimed() == hashes(sent)
    assert not failed


def test_pages_without_an_end_hide_nothing_that_comes_after_them(bench, whole, monkeypatch):
    """A Store that makes up messages of a second holds up that second."""
    thorough_, own = whole
    monkeypatch.setattr("wakupush.waku.store.MOST_PAGES", 1)
    own.walker.settle(SHARD, ago(1), None)
    bench.send(ago=1000.5, count=250)
    after = bench.send(ago=900)
    with capture_logs() as logs:
        while turned(thorough_):
            pass
    assert {log["event"] for log in logs if log["log_level"] == "error"} == {"slice_skipped"}
    assert hashes(after) <= bench.claimed()


def test_recent_messages_are_found_beside_a_walk_over_the_whole_window(bench, whole):
    """A flood, or a day at 200 messages a second, is walked by a thread of its own."""
    thorough_, own = whole
    own.walker.settle(SHARD, ago(1), None)
    pages = []
    pausing = Event()

    def hold(*_, **__):
        pages.append(1)
        pausing.wait()
        raise walk.Stopped

    thorough_.walker.store.walk = hold
    thread = Thread(target=turned, args=[thorough_])
    thread.start()
    wait_until(lambda: pages, timeout=60, what="the walk over the window is in the middle of a page")
    sent = bench.send(ago=0, count=3)
    assert turned(own).enqueued == 3
    assert bench.claimed() == hashes(sent)
    pausing.set()
    thread.join()


def test_at_200_messages_a_second_looks_and_slices_keep_up(bench, whole, monkeypatch):
    """A look reads a few seconds, whatever the overlap; the window is walked beside it, and what is lost is found."""
    thorough_, own = whole
    rate, seconds = 200, 120
    stream = bench.send(bench.personal, ago=0.0, count=rate * seconds, apart=1 / rate)
    lost = [stream[100], stream[-300], stream[-2]]
    bench.handle([entry for entry in stream if entry not in lost])
    own.walker.settle(SHARD, ago(1), None)
    own._back_due[SHARD] = math.inf
    own._ended[SHARD] = stream[-1].seen - own.settings.pause
    tally = turned(own)
    assert tally.examined <= rate * (own.settings.pause + 5 + 1)
    assert bench.claimed() == hashes(lost[1:])
    thorough_._whole_due[SHARD], thorough_._catch_up_due[SHARD] = 0.0, math.inf
    monkeypatch.setattr(thorough, "SLICE_PAGES", 100)
    thorough_.settings = thorough_.settings.model_copy(update={"overlap": 30.0})
    thorough_.walker.kind = replace(thorough_.walker.kind, window=300.0)
    assert turned(thorough_)
    course = thorough_._whole[SHARD]
    while turned(thorough_):
        pass
    assert course.tally.examined >= rate * (seconds - 31)
    assert hashes(lost) == bench.claimed()


def test_an_interrupted_walk_is_resumed_from_the_watermark(bench, opened, node_url, monkeypatch):
    _, own, _ = opened
    own.walker.settle(SHARD, ago(1), None)
    before = bench.watermark(own)
    sent = bench.send(count=250, ago=0)

    def fault(number):
        if number == 1:
            fault = {"path": "/store", "kind": "status", "status": 500, "times": 1}
            httpx2.post(f"{node_url}/dev/faults", json=fault)

    each_page(own, monkeypatch, fault)
    with capture_logs() as logs:
        assert looked_back(own) is None
    warnings = [log for log in logs if log["log_level"] == "warning"]
    assert [(log["event"], log["error"]) for log in warnings] == [("walk_failed", "NodeUnreachable")]
    assert bench.watermark(own) == before
    assert len(bench.claimed()) == 100
    httpx2.delete(f"{node_url}/dev/faults")
    tally = looked_back(own)
    assert (tally.examined, tally.enqueued) == (250, 150)
    assert bench.claimed() == hashes(sent)


def each_page(recent, monkeypatch, called):
    """Call a function with its number after each page of a walk."""
    pages = []
    heal = walk.Walker._heal

    def note(walker, *arguments):
        heal(walker, *arguments)
        if walker is recent.walker:
            pages.append(1)
            called(len(pages))

    monkeypatch.setattr(walk.Walker, "_heal", note)


def test_the_page_at_hand_is_finished_before_the_end(bench, opened, monkeypatch):
    _, own, _ = opened
    own.walker.settle(SHARD, ago(2), None)
    before = bench.watermark(own)
    bench.send(count=150, ago=0)
    each_page(own, monkeypatch, lambda _: bench.stop.set())
    assert looked_back(own) is None
    assert len(bench.claimed()) == 100
    assert bench.watermark(own) == before


def test_queries_are_found_in_the_whole_shard(bench, opened):
    queries, *_ = opened
    watched.add(bench.redis, [bytes.fromhex("00ff00ff")])
    [query] = bench.send("/waku/1/0x00ff00ff/rfc26")
    bench.send(FOREIGN, count=2)
    bench.send("/waku/1/0x00ff00ff/rfc26", ago=500)
    looked_back(queries)
    assert bench.queued() == {"query": 1}
    assert bench.claimed() == {query.hash}
    assert bench.watermark(queries) < query.message.timestamp


@pytest.mark.parametrize("overlap", [120.0, 20.0])
def test_a_query_whose_claim_outlived_its_place_in_the_queue_heals(bench, overlap):
    """Redis was killed after the claim, and lost the rest: nobody looks for it anew until the claim is over."""
    found, queries, *_ = bench.walkers(overlap=overlap)
    topic = os.urandom(4)
    watched.add(bench.redis, [topic])
    [query] = bench.send(f"/waku/1/0x{topic.hex()}/rfc26", ago=bench.settings().ingest.claim_ttl + 30)
    queries.walker.settle(SHARD, ago(100), query.message.timestamp)
    looked_back(queries)
    found.close()
    assert bench.claimed() == {query.hash}
    assert bench.queued() == {"query": 1}


def test_without_the_whole_set_of_watched_topics_no_query_is_looked_for(bench, opened, monkeypatch):
    queries, own, _ = opened
    bench.redis.delete(watched.MARKER)
    assert looked_back(queries) is None
    assert looked_back(own) is not None
    assert bench.watermark(queries) is None
    watched.mark_complete(bench.redis, watched.begin_filling(bench.redis))
    bench.send(FOREIGN)
    each_page(queries, monkeypatch, lambda _: bench.redis.flushall())  # Redis is wiped during the walk
    assert looked_back(queries) is None
    assert bench.watermark(queries) is None


def test_a_message_in_a_workers_hands_is_left_to_it(bench, opened):
    _, own, _ = opened
    own.walker.settle(SHARD, ago(2), None)
    before = time.time_ns()
    [entry] = bench.send(ago=0)
    with bench.connection.transaction():
        ledger.count_attempt(bench.connection, entry)
    tally = looked_back(own)
    assert (tally.missing, tally.enqueued) == (1, 0)
    assert bench.queued() == {}
    assert bench.watermark(own) < before + 10**9


def test_a_claim_whose_holder_died_keeps_the_message_in_sight(bench, opened):
    _, own, _ = opened
    own.walker.settle(SHARD, ago(1), None)
    [entry] = bench.send(ago=0)
    bench.redis.set(b"wakupush:claim:" + entry.hash, b"", ex=120)
    held = looked_back(own)
    assert (held.missing, held.enqueued) == (1, 0)
    assert bench.watermark(own) < entry.message.timestamp
    bench.redis.delete(b"wakupush:claim:" + entry.hash)  # its time is over
    healed = looked_back(own)
    assert (healed.missing, healed.enqueued) == (1, 1)


def test_a_full_queue_ends_the_walk_and_the_watermark_stays(bench):
    found, _, own, _ = bench.walkers()
    settings = own.walker.enqueuer.settings.model_copy(update={"queue_limit": 1})
    own.walker.enqueuer = replace(own.walker.enqueuer, settings=settings)
    own.walker.settle(SHARD, ago(2), None)
    bench.send(bench.personal)
    assert looked_back(own) is not None
    before = bench.watermark(own)
    bench.send(bench.personal)
    assert looked_back(own) is None
    assert bench.queued() == {"registration": 1}
    assert bench.watermark(own) == before
    found.close()


def test_what_goes_to_a_queue_rests_while_that_is_behind_and_nothing_else_does(bench):
    """A backlog of push requests holds up no registration."""
    found, queries, registrations, requests = bench.walkers(pause=0.1, backlog_age=60)
    [old] = bench.send(bench.partitioned, ago=100)
    send_entries(requests.walker.enqueuer.app, DISPATCH, [old])
    lost, waiting = bench.send(ago=0), bench.send(bench.partitioned, ago=0)
    threads = [Thread(target=each.run) for each in (registrations, requests)]
    with capture_logs() as logs:
        for thread in threads:
            thread.start()
        told = [("resting", "dispatch")]
        wait_until(lambda: events(logs) == told, timeout=60, what="it rests")
        turned = requests.walker.turned
        wait_until(lambda: requests.walker.turned > turned, timeout=60, what="its loop turns all the same")
        wait_until(lambda: hashes(lost) <= bench.claimed(), timeout=60, what="the registration is healed")
        assert not hashes(waiting) & bench.claimed()
        bench.redis.delete("dispatch")
        wait_until(lambda: hashes(waiting) <= bench.claimed(), timeout=60, what="it goes on")
        bench.stop.set()
        for thread in threads:
            thread.join()
    assert events(logs) == [("resting", "dispatch"), ("rested", "dispatch")]
    assert all(found.healthy().values())
    found.close()
    assert queries.finished < 0


def events(logs):
    return [(log["event"], log["queue"]) for log in logs if log["event"] in {"resting", "rested"}]


def test_behind_a_redis_that_hangs_walks_do_not_wait_for_each_other():
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # it takes connections and says nothing
        settings = RedisSettings(url=f"redis://127.0.0.1:{hanging.getsockname()[1]}/0", timeout=1.5)
        with open_redis(settings) as redis, ThreadPoolExecutor(6) as threads:
            rest = Rest(redis, 60.0)
            begun = time.monotonic()
            asked = [threads.submit(rest.is_due, DISPATCH) for _ in range(6)]
            for each in asked:
                assert isinstance(each.exception(), TimedOut | None)
            assert time.monotonic() - begun < 5 * settings.timeout  # one after the other they would take six


def test_two_at_once_do_no_harm(bench):
    one, _, own, _ = bench.walkers()
    two, _, other, _ = bench.walkers()
    sent = bench.send(count=130, ago=0)
    threads = [Thread(target=walked, args=(each, 60)) for each in (own, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.claimed() == hashes(sent)
    messages = [len(task) for task in _batches(bench.redis, "registration")]
    assert sum(messages) == 130
    one.close()
    two.close()


def _batches(redis, queue):
    bodies = [json.loads(raw)["body"] for raw in redis.lrange(queue, 0, -1)]
    return [json.loads(base64.b64decode(body))[0][0] for body in bodies]


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        ({"redis_url": "redis://127.0.0.1:1/0"}, "ConnectionError"),
        ({"dsn": "postgresql://wakupush@127.0.0.1:1/nowhere"}, "PoolTimeout"),
        ({"stores": (NOWHERE,)}, "NodeUnreachable"),
    ],
)
def test_what_is_down_is_named_and_nothing_moves(bench, broken, error):
    bench.send()
    bench.send(bench.partitioned)
    found, *walkers = bench.walkers(**broken)
    with capture_logs() as logs:
        assert [looked_back(each) for each in walkers] == [None, None, None]
    failed = [log for log in logs if log["event"] == "walk_failed"]
    assert {log["error"] for log in failed} - {"NotEnqueued"} == {error}
    assert bench.connection.execute("SELECT count(*) FROM watermarks").fetchone() == (0,)
    found.close()


def test_a_store_that_is_down_does_not_hold_up_the_other(bench):
    found, *walkers = bench.walkers(stores=(NOWHERE, bench.node_url), pause=0.1)
    sent = bench.send(ago=0)
    threads = [Thread(target=walker.run) for walker in walkers]
    for thread in threads:
        thread.start()
    wait_until(lambda: bench.claimed() == hashes(sent), timeout=60, what="the other is walked")
    name = bench.node_url.removeprefix("http://")
    wait_until(lambda: found.ready() == {"127.0.0.1:1": False, name: True}, timeout=60, what="readiness says it")
    bench.stop.set()
    for thread in threads:
        thread.join()
    found.close()


# --- the command ---


def run_once(bench, *arguments, stderr=subprocess.PIPE, **environment):
    """Run it as a process: it configures the logs."""
    return subprocess.run(
        [sys.executable, "-m", "wakupush", "ingest", "reconcile", *arguments],
        env={
            **os.environ,
            "WAKUPUSH_PUBLIC_KEY": str(bench.server),
            "WAKUPUSH_WAKU__URL": bench.node_url,
            "WAKUPUSH_WAKU__SHARDS": f'["{SHARD}"]',
            "WAKUPUSH_REDIS__URL": bench.redis_url,
            "WAKUPUSH_POSTGRES__DSN": make_conninfo(bench.dsn, user=Role.RECONCILE),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        check=False,
    )


def test_once_says_what_it_found(bench):
    bench.send(ago=7000, count=3)
    bench.send(ago=100, count=2)
    name = bench.node_url.removeprefix("http://")
    result = run_once(bench, "--once", "--since", "10m")
    assert result.returncode == 0
    assert f"{name} {SHARD} registration: 2 examined, 2 missing, 2 enqueued" in result.stdout
    assert bench.connection.execute("SELECT count(*) FROM watermarks").fetchone() == (0,)
    result = run_once(bench, "--once")
    assert f"{name} {SHARD} registration: 5 examined, 5 missing, 3 enqueued" in result.stdout
    assert bench.connection.execute("SELECT count(*) FROM watermarks").fetchone() == (3,)


def read_all(terminal, parts):
    """Read until the other side is closed."""
    with suppress(OSError):
        while part := os.read(terminal, 65_536):
            parts.append(part)


def test_a_terminal_shows_how_it_goes(bench):
    bench.send(count=3)
    ours, theirs = pty.openpty()
    parts = []
    # A terminal that nobody reads holds up who writes to it.
    reader = Thread(target=read_all, args=(ours, parts))
    reader.start()
    try:
        assert run_once(bench, "--once", stderr=theirs, TERM="xterm", COLUMNS="160").returncode == 0
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)
    shown = b"".join(parts).decode()
    assert "registration" in shown
    assert "3 examined, 3 missing, 3 enqueued" in shown


def test_once_fails_if_a_store_was_not_walked_to_its_end(bench):
    bench.send()
    stores = f'["{NOWHERE}", "{bench.node_url}"]'
    result = run_once(bench, "--once", WAKUPUSH_RECONCILE__STORES=stores)
    assert result.returncode == 1
    assert f"127.0.0.1:1 {SHARD} registration: not walked to the end" in result.stdout
    assert "registration: 1 examined, 1 missing, 1 enqueued" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (["--since", "2h"], {}, "--since needs --once"),
        (["--once", "--since", "soon"], {}, "--since is a duration"),
        (["--once", "--since", "90d"], {}, "WAKUPUSH_RETENTION__LEDGER"),
        (["--once"], {"WAKUPUSH_PUBLIC_KEY": ""}, "WAKUPUSH_PUBLIC_KEY"),
        (["--once"], {"WAKUPUSH_RECONCILE__STORES": '["nowhere"]'}, "WAKUPUSH_RECONCILE__STORES"),
    ],
)
def test_what_is_wrong_with_the_command_is_said(bench, arguments, environment, text):
    result = run_once(bench, *arguments, **environment)
    assert result.returncode == 2
    assert text in result.stderr
