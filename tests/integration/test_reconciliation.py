"""Reconciliation on a real Postgres, a real Redis and development nodes."""

import base64
import json
import os
import pty
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event, Thread

import httpx2
import pytest
from psycopg.conninfo import make_conninfo
from redis import Redis
from redis import TimeoutError as TimedOut
from structlog.testing import capture_logs

from ingest.reconcile import Reconciliation, Rest
from wakupush.devnet.processes import Process, answers_http, free_port, wait_until
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
from wakupush.waku.node import WakuNode

SHARD = "/waku/2/rs/16/32"
FOREIGN = "/waku/1/0x12345678/rfc26"
NOWHERE = "http://127.0.0.1:1"


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
        return opened, *opened.walkers

    def send(self, content_topic=None, *, ago=1.0, count=1):
        stamp = time.time_ns() - int(ago * 10**9)
        sent = []
        with WakuNode(self.node_url) as node:
            for _ in range(count):
                message = WakuMessage(
                    payload=os.urandom(40), content_topic=content_topic or self.personal, timestamp=stamp
                )
                node.publish(SHARD, message)
                sent.append(Entry(SHARD, message_hash(SHARD, message), stamp / 1e9, message))
        return sent

    def queued(self):
        return {name: self.redis.llen(name) for name in QUEUES if self.redis.llen(name)}

    def claimed(self):
        return {key.removeprefix(b"wakupush:claim:") for key in self.redis.keys("wakupush:claim:*")}

    def handle(self, entries):
        with self.connection.transaction():
            ledger.add(self.connection, entries)

    def watermark(self, walker):
        return reconciliation.watermark(self.connection, Track(walker.name, SHARD, walker.kind.name))


@pytest.fixture
def bench(node_url, dsn, redis_server, redis, connection):
    bench = Bench(node_url, dsn, redis_server, redis, connection)
    yield bench
    bench.stop.set()


@pytest.fixture
def opened(bench):
    found, queries, own = bench.walkers()
    yield queries, own
    found.close()


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
    track = Track("node:1", SHARD, "own_topics")
    assert reconciliation.watermark(connection, track) is None
    assert reconciliation.advance(connection, track, 100, most=100) == 100
    assert reconciliation.advance(connection, track, 50, most=100) == 100
    assert reconciliation.advance(connection, replace(track, pubsub_topic="other"), 7, most=100) == 7
    assert reconciliation.watermark(connection, track) == 100
    assert reconciliation.advance(connection, track, 60, most=99) == 60
    assert reconciliation.watermark(connection, track) == 60


# --- walks ---


def test_what_is_missing_is_enqueued_and_claimed(bench, opened):
    _, own = opened
    done, lost, push = bench.send(ago=2)[0], bench.send(ago=5)[0], bench.send(bench.partitioned)[0]
    bench.send(FOREIGN)
    bench.handle([done])
    tally = own.try_walk(SHARD, ago(60))
    assert (tally.examined, tally.missing, tally.enqueued, tally.malformed) == (3, 2, 2, 0)
    assert bench.queued() == {"registration": 1, "dispatch": 1}
    assert bench.claimed() == {lost.hash, push.hash}
    again = own.try_walk(SHARD, ago(60))
    assert (again.missing, again.enqueued) == (2, 0)  # somebody has it, and it is not done yet


def test_the_watermark_passes_what_is_done_and_nothing_else(bench, opened):
    _, own = opened
    before = time.time_ns()
    assert own.try_walk(SHARD, ago(60)) is not None
    assert bench.watermark(own) >= before
    [lost] = bench.send(ago=-0.2)
    time.sleep(0.3)  # its time has come
    own.try_walk(SHARD, ago(60))
    assert bench.watermark(own) == lost.message.timestamp - 1
    bench.handle([lost])
    own.try_walk(SHARD, ago(60))
    assert bench.watermark(own) > lost.message.timestamp


def test_a_walk_begins_before_the_watermark_and_at_what_was_missing(bench, opened):
    _, own = opened
    assert own.try_walk(SHARD, ago(600), only_recent=True).since == pytest.approx(ago(600), abs=2)
    overlapped = own.try_walk(SHARD, ago(600), only_recent=True)
    assert overlapped.since == pytest.approx(ago(120), abs=2)
    [late] = bench.send(ago=400)
    assert own.try_walk(SHARD, ago(600), only_recent=True).missing == 0  # its sender's clock was 400 s behind
    assert own.try_walk(SHARD, ago(600)).enqueued == 1
    bench.redis.flushall()  # and lost again
    healed = own.try_walk(SHARD, ago(600), only_recent=True)
    assert (healed.enqueued, healed.since) == (1, pytest.approx(late.seen - 120, abs=0.01))
    bench.handle([late])
    own.try_walk(SHARD, ago(600), only_recent=True)
    assert own.try_walk(SHARD, ago(600), only_recent=True).since == pytest.approx(ago(120), abs=2)


def test_a_watermark_of_a_clock_that_was_ahead_says_nothing(bench, opened):
    _, own = opened
    own.try_walk(SHARD, ago(600))
    ahead = time.time_ns() + 3600 * 10**9
    reconciliation.advance(bench.connection, Track(own.name, SHARD, own.kind.name), ahead, most=ahead)
    bench.send(ago=400)
    healed = own.try_walk(SHARD, ago(600), only_recent=True)
    assert (healed.enqueued, healed.since) == (1, pytest.approx(ago(600), abs=2))


def test_the_whole_window_is_walked_first_and_when_it_is_due(bench, opened):
    _, own = opened
    bench.send(ago=3000)
    own.settings = own.settings.model_copy(update={"full_interval": 1000.0})
    sinces = []
    own.report = lambda tally: sinces.append(round(time.time() - tally.since))
    assert own._turn(SHARD)
    assert own._turn(SHARD)
    window, later = sinces[0], sinces[-1]
    assert window == pytest.approx(86_400, abs=2)
    assert later == pytest.approx(3120, abs=3)  # what is still missing
    sinces.clear()
    assert own._turn(SHARD)
    assert sinces == [pytest.approx(3120, abs=3)]
    sinces.clear()
    own._full_due.clear()
    assert own._turn(SHARD)
    assert sinces == [pytest.approx(3120, abs=3), pytest.approx(86_400, abs=2)]


def test_an_interrupted_walk_is_resumed_from_the_watermark(bench, opened, node_url):
    _, own = opened
    own.try_walk(SHARD, ago(60))
    before = bench.watermark(own)
    sent = bench.send(count=250, ago=0)
    quiet = own.report
    own.report = lambda _: httpx2.post(
        f"{node_url}/dev/faults", json={"path": "/store", "kind": "status", "status": 500, "times": 1}
    )
    with capture_logs() as logs:
        assert own.try_walk(SHARD, ago(60)) is None
    warnings = [log for log in logs if log["log_level"] == "warning"]
    assert [(log["event"], log["error"]) for log in warnings] == [("walk_failed", "NodeUnreachable")]
    assert bench.watermark(own) == before
    assert len(bench.claimed()) == 100
    httpx2.delete(f"{node_url}/dev/faults")
    own.report = quiet
    tally = own.try_walk(SHARD, ago(60), only_recent=True)
    assert (tally.examined, tally.enqueued) == (250, 150)
    assert bench.claimed() == hashes(sent)


def test_the_page_at_hand_is_finished_before_the_end(bench, opened):
    _, own = opened
    bench.send(count=150, ago=0)
    own.report = lambda _: bench.stop.set()
    assert own.try_walk(SHARD, ago(60)) is None
    assert len(bench.claimed()) == 100
    assert bench.watermark(own) is None


def test_queries_are_found_in_the_whole_shard(bench, opened):
    queries, _ = opened
    watched.add(bench.redis, [bytes.fromhex("00ff00ff")])
    [query] = bench.send("/waku/1/0x00ff00ff/rfc26")
    bench.send(FOREIGN, count=2)
    bench.send("/waku/1/0x00ff00ff/rfc26", ago=500)
    queries.try_walk(SHARD, ago(queries.kind.window))
    assert bench.queued() == {"query": 1}
    assert bench.claimed() == {query.hash}


def test_without_the_whole_set_of_watched_topics_no_query_is_looked_for(bench, opened):
    queries, own = opened
    bench.redis.delete(watched.MARKER)
    assert queries.try_walk(SHARD, ago(60)) is None
    assert own.try_walk(SHARD, ago(60)) is not None
    assert bench.watermark(queries) is None
    watched.mark_complete(bench.redis, watched.begin_filling(bench.redis))
    bench.send(FOREIGN)
    queries.report = lambda _: bench.redis.flushall()  # Redis is wiped during the walk
    assert queries.try_walk(SHARD, ago(60)) is None
    assert bench.watermark(queries) is None


def test_a_message_in_a_workers_hands_is_left_to_it(bench, opened):
    _, own = opened
    before = time.time_ns()
    [entry] = bench.send(ago=0)
    with bench.connection.transaction():
        ledger.count_attempt(bench.connection, entry)
    tally = own.try_walk(SHARD, ago(60))
    assert (tally.missing, tally.enqueued) == (1, 0)
    assert bench.queued() == {}
    assert bench.watermark(own) < before + 10**9


def test_a_claim_whose_holder_died_keeps_the_message_in_sight(bench, opened):
    _, own = opened
    own.try_walk(SHARD, ago(60))
    [entry] = bench.send(ago=0)
    bench.redis.set(b"wakupush:claim:" + entry.hash, b"", ex=120)
    own.settings = own.settings.model_copy(update={"overlap": 0.001})
    held = own.try_walk(SHARD, ago(60), only_recent=True)
    assert (held.missing, held.enqueued) == (1, 0)
    bench.redis.delete(b"wakupush:claim:" + entry.hash)  # its time is over
    healed = own.try_walk(SHARD, ago(60), only_recent=True)
    assert (healed.missing, healed.enqueued) == (1, 1)


def test_a_full_queue_ends_the_walk_and_the_watermark_stays(bench):
    found, _, own = bench.walkers()
    own.enqueuer = replace(own.enqueuer, settings=own.enqueuer.settings.model_copy(update={"queue_limit": 1}))
    bench.send(bench.personal)
    bench.send(bench.partitioned)
    assert own.try_walk(SHARD, ago(60)) is not None
    bench.send(bench.personal)
    assert own.try_walk(SHARD, ago(60)) is None
    assert bench.queued() == {"registration": 1, "dispatch": 1}
    found.close()


def test_it_rests_while_the_queues_are_behind(bench):
    found, queries, own = bench.walkers(pause=0.1, backlog_age=60)
    [old] = bench.send(ago=100)
    send_entries(own.enqueuer.app, DISPATCH, [old])
    lost = bench.send(ago=0)
    thread = Thread(target=own.run)
    with capture_logs() as logs:
        thread.start()
        wait_until(lambda: [log["event"] for log in logs] == ["resting"], timeout=60, what="it rests")
        turned = own.turned
        wait_until(lambda: own.turned > turned, timeout=60, what="its loop turns all the same")
        assert not bench.claimed()
        bench.redis.delete("dispatch")
        wait_until(lambda: hashes(lost) <= bench.claimed(), timeout=60, what="it goes on")
        bench.stop.set()
        thread.join()
    assert [log["event"] for log in logs][:2] == ["resting", "rested"]
    assert all(found.healthy().values())
    found.close()
    assert queries.finished < 0


def test_behind_a_redis_that_hangs_walks_do_not_wait_for_each_other():
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # it takes connections and says nothing
        settings = RedisSettings(url=f"redis://127.0.0.1:{hanging.getsockname()[1]}/0", timeout=1.5)
        with open_redis(settings) as redis, ThreadPoolExecutor(6) as threads:
            rest = Rest(redis, 60.0)
            begun = time.monotonic()
            asked = [threads.submit(rest.is_due) for _ in range(6)]
            for each in asked:
                assert isinstance(each.exception(), TimedOut | None)
            assert time.monotonic() - begun < 5 * settings.timeout  # one after the other they would take six


def test_two_at_once_do_no_harm(bench):
    one, _, own = bench.walkers()
    two, _, other = bench.walkers()
    sent = bench.send(count=130, ago=0)
    threads = [Thread(target=walker.try_walk, args=(SHARD, ago(60))) for walker in (own, other)]
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
    found, *walkers = bench.walkers(**broken)
    with capture_logs() as logs:
        assert [walker.try_walk(SHARD, ago(60)) for walker in walkers] == [None, None]
    failed = [log for log in logs if log["event"] == "walk_failed"]
    assert {log["error"] for log in failed} == {error}
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
    assert f"{name} {SHARD} own_topics: 2 examined, 2 missing, 2 enqueued" in result.stdout
    assert bench.connection.execute("SELECT count(*) FROM watermarks").fetchone() == (0,)
    result = run_once(bench, "--once")
    assert f"{name} {SHARD} own_topics: 5 examined, 5 missing, 3 enqueued" in result.stdout
    assert bench.connection.execute("SELECT count(*) FROM watermarks").fetchone() == (2,)


def test_a_terminal_shows_how_it_goes(bench):
    bench.send(count=3)
    ours, theirs = pty.openpty()
    try:
        assert run_once(bench, "--once", stderr=theirs, TERM="xterm", COLUMNS="160").returncode == 0
        os.close(theirs)
        shown = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
    assert "own_topics" in shown
    assert "3 examined, 3 missing, 3 enqueued" in shown


def test_once_fails_if_a_store_was_not_walked_to_its_end(bench):
    bench.send()
    stores = f'["{NOWHERE}", "{bench.node_url}"]'
    result = run_once(bench, "--once", WAKUPUSH_RECONCILE__STORES=stores)
    assert result.returncode == 1
    assert f"127.0.0.1:1 {SHARD} own_topics: not walked to the end" in result.stdout
    assert "own_topics: 1 examined, 1 missing, 1 enqueued" in result.stdout


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
