"""What reconciliation leaves to queues, workers and other replicas, and what is down beside it."""

import base64
import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Thread
from types import SimpleNamespace

import pytest
from redis import TimeoutError as TimedOut
from structlog.testing import capture_logs

from support.reconciling import FOREIGN, NOWHERE, SHARD, after_each_page, ago, hashes, looked_back, walk_from
from wakupush.devnet.processes import wait_until
from wakupush.ingest.reconcile import walk
from wakupush.ingest.reconcile.rest import Rest
from wakupush.model.queues import DISPATCH, REST_WORKER
from wakupush.postgres import ledger
from wakupush.redis import claims, watched
from wakupush.redis.presence import Presence
from wakupush.redis.sending import send_entries
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import RedisSettings
from wakupush.waku.errors import NodeUnreachable


def test_queries_are_found_in_the_whole_shard(bench, recent_walks):
    queries, *_ = recent_walks
    watched.add(bench.redis, [bytes.fromhex("00ff00ff")])
    [query] = bench.send("/waku/1/0x00ff00ff/rfc26")
    bench.send(FOREIGN, count=2)
    bench.send("/waku/1/0x00ff00ff/rfc26", ago=500)
    looked_back(queries)
    assert bench.queued_hashes() == {"query": 1}
    assert bench.claimed_hashes() == {query.hash}
    assert bench.watermark(queries) < query.message.timestamp


@pytest.mark.parametrize("overlap", [120.0, 20.0])
def test_lost_query_is_healed(bench, overlap):
    """Redis was killed after the claim, and lost the rest: nobody looks for it anew until the claim is over."""
    reconciliation, queries, *_ = bench.walkers(overlap=overlap)
    topic = os.urandom(4)
    watched.add(bench.redis, [topic])
    [query] = bench.send(f"/waku/1/0x{topic.hex()}/rfc26", ago=bench.settings().ingest.claim_ttl + 30)
    queries.walker.settle(SHARD, ago(100), query.message.timestamp)
    looked_back(queries)
    reconciliation.close()
    assert bench.claimed_hashes() == {query.hash}
    assert bench.queued_hashes() == {"query": 1}


def test_query_walk_needs_all_watched_topics(bench, recent_walks, monkeypatch):
    queries, own, _ = recent_walks
    bench.redis.delete(watched.MARKER)
    assert looked_back(queries) is None
    assert looked_back(own) is not None
    assert bench.watermark(queries) is None
    watched.mark_complete(bench.redis, watched.begin_filling(bench.redis))
    bench.send(FOREIGN)
    after_each_page(queries, monkeypatch, lambda _: bench.redis.flushall())  # Redis is wiped during the walk
    assert looked_back(queries) is None
    assert bench.watermark(queries) is None


def test_query_walk_notices_a_wipe_and_a_refill(bench, recent_walks, monkeypatch):
    queries, *_ = recent_walks
    bench.send(FOREIGN)

    def wipe_and_fill(_):
        bench.redis.flushall()
        watched.mark_complete(bench.redis, watched.begin_filling(bench.redis))

    after_each_page(queries, monkeypatch, wipe_and_fill)
    assert looked_back(queries) is None
    assert bench.watermark(queries) is None


@pytest.mark.parametrize(("seconds_ago", "enqueued"), [(100, {}), (130, {"query": 1})])
def test_query_that_was_handled_alone_is_healed(bench, recent_walks, seconds_ago, enqueued):
    queries, *_ = recent_walks
    topic = os.urandom(4)
    watched.add(bench.redis, [topic])
    [query] = bench.send(f"/waku/1/0x{topic.hex()}/rfc26", ago=200)
    queries.walker.settle(SHARD, ago(250), None)
    ledger.count_attempt(bench.connection, query)
    bench.connection.execute("UPDATE message_attempts SET updated_at = now() - %s * interval '1 s'", [seconds_ago])
    looked_back(queries)
    assert bench.queued_hashes() == enqueued


def test_a_message_in_a_workers_hands_is_left_to_it(bench, recent_walks):
    _, own, _ = recent_walks
    own.walker.settle(SHARD, ago(2), None)
    before = time.time_ns()
    [entry] = bench.send(ago=0)
    with bench.connection.transaction():
        ledger.count_attempt(bench.connection, entry)
    tally = looked_back(own)
    assert (tally.missing, tally.enqueued) == (1, 0)
    assert bench.queued_hashes() == {}
    assert bench.watermark(own) < before + 10**9


@pytest.mark.parametrize("node_url", ["nwaku"], indirect=True)
def test_of_what_waits_only_the_oldest_is_fetched(bench, recent_walks, monkeypatch):
    _, own, _ = recent_walks
    own.walker.settle(SHARD, ago(20), None)
    waiting = bench.send(ago=0, count=5, apart=1.0)
    claims.claim(bench.redis, [entry.hash for entry in waiting], 120)
    [lost] = bench.send(ago=2.5)
    fetched = []
    fetch = own.walker.store.fetch
    monkeypatch.setattr(own.walker.store, "fetch", lambda query, names: fetched.extend(names) or fetch(query, names))
    tally = looked_back(own)
    assert (tally.missing, tally.enqueued) == (6, 1)
    assert fetched == [waiting[0].hash, lost.hash]
    assert bench.watermark(own) == waiting[0].message.timestamp - 1


@pytest.mark.parametrize("node_url", ["nwaku"], indirect=True)
def test_watermark_stays_if_a_store_lists_what_it_lacks(bench, recent_walks, monkeypatch):
    _, own, _ = recent_walks
    own.walker.settle(SHARD, watermark := ago(20), None)
    claims.claim(bench.redis, [entry.hash for entry in bench.send(count=2)], 120)
    monkeypatch.setattr(own.walker.store, "fetch", lambda *_: [])
    looked_back(own)
    assert bench.watermark(own) == int(watermark * 10**9)


def test_dead_holders_claim_keeps_the_watermark(bench, recent_walks):
    _, own, _ = recent_walks
    own.walker.settle(SHARD, ago(1), None)
    [entry] = bench.send(ago=0)
    bench.redis.set(b"wakupush:claim:" + entry.hash, b"", ex=120)
    tally = looked_back(own)
    assert (tally.missing, tally.enqueued) == (1, 0)
    assert bench.watermark(own) < entry.message.timestamp
    bench.redis.delete(b"wakupush:claim:" + entry.hash)  # its time is over
    healed = looked_back(own)
    assert (healed.missing, healed.enqueued) == (1, 1)


def test_full_queue_ends_the_walk(bench):
    reconciliation, _, own, _ = bench.walkers()
    settings = own.walker.enqueuer.settings.model_copy(update={"queue_bytes": 2000})
    own.walker.enqueuer = replace(own.walker.enqueuer, settings=settings)
    own.walker.settle(SHARD, ago(2), None)
    bench.send(bench.personal)
    assert looked_back(own) is not None
    before = bench.watermark(own)
    bench.send(bench.personal)
    assert looked_back(own) is None
    assert bench.queued_hashes() == {"registration": 1}
    assert bench.watermark(own) == before
    reconciliation.close()


def test_only_the_walk_of_a_queue_that_is_behind_rests(bench):
    """A backlog of push requests holds up no registration."""
    reconciliation, queries, registrations, requests = bench.walkers(pause=0.1, backlog_age=60)
    [old] = bench.send(bench.partitioned, ago=100)
    send_entries(requests.walker.enqueuer.app, DISPATCH, [replace(old, live=True)])
    lost, waiting = bench.send(ago=0), bench.send(bench.partitioned, ago=0)
    threads = [Thread(target=each.run) for each in (registrations, requests)]
    with capture_logs() as logs:
        for thread in threads:
            thread.start()
        expected_events = [("resting", "dispatch")]
        wait_until(lambda: events(logs) == expected_events, timeout=60, what="it rests")
        turn_time = requests.walker.turned_at
        wait_until(lambda: requests.walker.turned_at > turn_time, timeout=60, what="its loop turns all the same")
        wait_until(lambda: hashes(lost) <= bench.claimed_hashes(), timeout=60, what="the registration is healed")
        assert not hashes(waiting) & bench.claimed_hashes()
        bench.redis.delete("dispatch")
        wait_until(lambda: hashes(waiting) <= bench.claimed_hashes(), timeout=60, what="it goes on")
        bench.stop.set()
        for thread in threads:
            thread.join()
    assert events(logs) == [("resting", "dispatch"), ("rested", "dispatch")]
    assert all(reconciliation.healthy().values())
    reconciliation.close()
    assert queries.finished_at < 0


def events(logs):
    return [(log["event"], log["queue"]) for log in logs if log["event"] in {"resting", "rested"}]


def test_walks_behind_a_hanging_redis_are_independent():
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # it takes connections and says nothing
        settings = RedisSettings(url=f"redis://127.0.0.1:{hanging.getsockname()[1]}/0", timeout=1.5)
        with open_redis(settings) as redis, ThreadPoolExecutor(6) as threads:
            rest = Rest(redis, 60.0)
            start_time = time.monotonic()
            futures = [threads.submit(rest.is_due, DISPATCH) for _ in range(6)]
            for each in futures:
                assert isinstance(each.exception(), TimedOut | None)
            assert time.monotonic() - start_time < 5 * settings.timeout  # one after the other they would take six


def test_two_at_once_do_no_harm(bench):
    one, _, own, _ = bench.walkers()
    two, _, other, _ = bench.walkers()
    entries = bench.send(count=130, ago=0)
    threads = [Thread(target=walk_from, args=(each, 60)) for each in (own, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bench.claimed_hashes() == hashes(entries)
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
    reconciliation, *walkers = bench.walkers(**broken)
    with capture_logs() as logs:
        assert [looked_back(each) for each in walkers] == [None, None, None]
    failures = [log for log in logs if log["event"] == "walk_failed"]
    assert {log["error"] for log in failures} - {"NotEnqueued"} == {error}
    assert bench.connection.execute("SELECT count(*) FROM watermarks").fetchone() == (0,)
    reconciliation.close()


def test_down_store_does_not_delay_the_other(bench):
    reconciliation, *walkers = bench.walkers(stores=(NOWHERE, bench.node_url), pause=0.1)
    entries = bench.send(ago=0)
    threads = [Thread(target=walker.run) for walker in walkers]
    for thread in threads:
        thread.start()
    wait_until(lambda: bench.claimed_hashes() == hashes(entries), timeout=60, what="the other is walked")
    name = bench.node_url.removeprefix("http://")
    wait_until(
        lambda: reconciliation.ready() == {"127.0.0.1:1": False, name: True}, timeout=60, what="readiness says it"
    )
    bench.stop.set()
    for thread in threads:
        thread.join()
    reconciliation.close()


def test_pauses_grow_beside_a_shard_that_works(recent_walks, monkeypatch):
    _, own, _ = recent_walks
    clock = [0.0]
    monkeypatch.setattr(walk, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def fail():
        attempts.append(clock[0])
        raise NodeUnreachable("down")

    attempts = []
    for second in range(95):
        clock[0] = second
        if own.walker.is_due(SHARD):
            own.walker.attempt(SHARD, fail)
        assert own.walker.is_due("/waku/2/rs/16/64")
        assert own.walker.attempt("/waku/2/rs/16/64", lambda: True)
    assert attempts == [0, 2, 6, 14, 30, 60, 90]


def test_walks_pause_while_the_queue_rest_is_behind(bench):
    """Without the pool its messages are lost, and the walks bring them."""
    stores, _, _, requests = bench.walkers(pause=0.1, backlog_age=60)
    [old] = bench.send(bench.partitioned, ago=100)
    send_entries(requests.walker.enqueuer.app, DISPATCH, [replace(old, live=True)], rest=True)
    assert not Rest(bench.redis).is_due(DISPATCH)
    Presence(bench.redis, REST_WORKER, dict).write()
    assert Rest(bench.redis).is_due(DISPATCH)
    Presence(bench.redis, REST_WORKER, lambda: {"consuming": False}).write()
    assert not Rest(bench.redis).is_due(DISPATCH)
    stores.close()
