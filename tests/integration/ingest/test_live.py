"""From a poll to the queues, on a real Redis."""

import base64
import json
import math
import os
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from kombu.exceptions import OperationalError
from redis import Redis
from redis import TimeoutError as TimedOut
from structlog.testing import capture_logs

from wakupush.devnet.processes import wait_until
from wakupush.ingest import enqueue
from wakupush.ingest.enqueue import Enqueuer, EnqueueResult
from wakupush.ingest.live.beacons import Beacons
from wakupush.ingest.live.hearing import Hearing
from wakupush.ingest.live.poller import Cache, Poller
from wakupush.ingest.routing import Routes
from wakupush.model.entries import Entry
from wakupush.model.queues import QUEUES, REGISTRATION
from wakupush.model.waku_message import INT64_MAX, INT64_MIN, WakuMessage
from wakupush.postgres import maintenance
from wakupush.protocol import payload, topics
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import backlog, watched
from wakupush.redis.celery_app import celery_app
from wakupush.redis.sending import decode_entry, encode_entry, send_entries
from wakupush.runtime import metrics
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import IngestSettings, RedisSettings, Settings
from wakupush.waku.errors import NodeError, NodeUnreachable, NodeUnreadable
from wakupush.waku.node import RelayRead

SHARD = "/waku/2/rs/16/32"
SERVER = PrivateKey.generate().public_key
PERSONAL = topics.content_topic(topics.personal_topic(SERVER))
PARTITIONED = topics.content_topic(topics.partitioned_topic(SERVER))
WATCHED = "/waku/1/0x00ff00ff/rfc26"


def settings(redis_url, **ingest) -> Settings:
    return Settings(redis=RedisSettings(url=redis_url, timeout=1), ingest=IngestSettings(**ingest))


def entry(content_topic=PERSONAL, size=400, **fields) -> Entry:
    message = WakuMessage(
        payload=os.urandom(size), content_topic=content_topic, **{"timestamp": time.time_ns(), **fields}
    )
    return Entry(SHARD, message_hash(SHARD, message), time.time(), message)


@pytest.fixture
def enqueuer(redis_server, redis):
    chosen = settings(redis_server.url, batch_size=10)
    with celery_app(chosen) as app:
        yield Enqueuer(app, redis, Routes.of(SERVER), chosen.ingest, draw=lambda: 0.999)


def batches_by_queue(redis) -> dict[str, list[list[Entry]]]:
    """Return the batches in each queue, the oldest first."""
    batches = {}
    for name in QUEUES:
        bodies = [json.loads(raw) for raw in reversed(redis.lrange(name, 0, -1))]
        batches[name] = [[decode_entry(each) for each in _arguments(body)[0]] for body in bodies]
    return batches


def oldest(redis):
    return min((each.oldest for each in backlog.look(redis).values() if each.oldest is not None), default=None)


def _arguments(body):
    return json.loads(base64.b64decode(body["body"]))[0]


@pytest.mark.parametrize("timestamp", [INT64_MIN, 0, INT64_MAX])
def test_entries_survive_their_way_through_json(timestamp):
    one = entry(meta=b"\x00meta", timestamp=timestamp)
    assert decode_entry(json.loads(json.dumps(encode_entry(one)))) == one


@pytest.mark.parametrize("fields", [{"version": 0}, {"version": 2**32 - 1}, {"ephemeral": True}])
def test_what_a_hash_does_not_cover_is_not_carried(enqueuer, redis, fields):
    """A copy that takes the claim of a message is the message."""
    one = entry()
    copy = replace(one, message=replace(one.message, **fields))
    assert copy.hash == message_hash(SHARD, copy.message)
    assert enqueuer.enqueue([copy]) == EnqueueResult(sent=1)
    assert batches_by_queue(redis)["registration"] == [[one]]


@pytest.mark.parametrize(
    ("topic", "least"),
    [(PERSONAL, 369), (PARTITIONED, 369), (WATCHED, 284)],
    ids=["personal", "partitioned", "query"],
)
def test_too_short_messages_are_dropped(enqueuer, redis, topic, least):
    """Its row in the ledger would be many times its size."""
    watched.add(redis, [bytes.fromhex("00ff00ff")])
    client = PrivateKey.generate()
    sealed = {369: payload.seal_asymmetric(b"", client.public_key), 284: payload.seal_symmetric(b"", bytes(32))}
    assert len(sealed[least]) == least
    count = metrics.MESSAGES_SHORT._value.get
    before = count()
    shortest_entry = entry(topic, size=least)
    assert enqueuer.enqueue([entry(topic, size=least - 1), entry(topic, size=0), shortest_entry]) == EnqueueResult(
        sent=1
    )
    assert [one for tasks in batches_by_queue(redis).values() for task in tasks for one in task] == [shortest_entry]
    assert count() == before + 2


def test_a_look_of_reconcile_counts_no_short_message(enqueuer):
    """It meets them again and again."""
    count = metrics.MESSAGES_SHORT._value.get
    before = count()
    for _ in range(3):
        assert enqueuer.ours([entry(size=1)]) == []
    assert count() == before


def test_each_kind_becomes_one_task(enqueuer, redis):
    watched.add(redis, [bytes.fromhex("00ff00ff")])
    mine = [entry(), entry(PARTITIONED), entry(WATCHED), entry()]
    foreign = [entry("/waku/1/0x12345678/rfc26"), entry("/other/1/topic/proto"), entry("")]
    assert enqueuer.enqueue([*foreign, *mine]) == EnqueueResult(sent=4)
    assert batches_by_queue(redis) == {
        "registration": [[mine[0], mine[3]]],
        "dispatch": [[mine[1]]],
        "query": [[mine[2]]],
    }


def test_headers_tell_how_many_and_how_old(enqueuer, redis):
    # A worker passes on what it read from a Store, too: the time of that is its sender's.
    entries = [entry(), replace(entry(), seen=5.0, live=True), replace(entry(), seen=1.0, live=False)]
    send_entries(enqueuer.app, REGISTRATION, entries)
    headers = json.loads(redis.lindex("registration", 0))["headers"]
    assert (headers["messages"], headers["seen"], headers["argsrepr"]) == (3, 5.0, "(3 messages)")
    assert oldest(redis) == 5.0


def test_age_of_queue_is_not_what_a_sender_says(enqueuer, redis):
    """Reconcile rests and alerts fire by it."""
    before = time.time()
    send_entries(enqueuer.app, REGISTRATION, [replace(entry(), seen=5.0, live=False)])
    assert oldest(redis) >= before


def test_time_in_a_store_is_no_time_in_the_queue(enqueuer, redis):
    before = time.time()
    enqueuer.enqueue([replace(entry(), seen=5.0)])
    enqueuer.enqueue([entry(PARTITIONED)])
    assert before <= oldest(redis) <= time.time()
    assert batches_by_queue(redis)["registration"][0][0].seen == 5.0
    redis.flushall()
    enqueuer.app.send_task("another", queue="query")
    assert oldest(redis) is None


@pytest.mark.parametrize(("messages", "tasks"), [(40, [10] * 4), (41, [40, 1]), (85, [40, 40, 5])])
def test_tasks_are_four_times_as_large_in_a_backlog(enqueuer, redis, messages, tasks):
    enqueuer.enqueue([entry() for _ in range(messages)])
    assert [len(batch) for batch in batches_by_queue(redis)["registration"]] == tasks


def test_a_task_carries_one_mebibyte_of_payload(enqueuer, redis):
    entries = [entry(size=size) for size in (400_000, 600_000, 48_577, 1_048_576, 400)]
    assert enqueuer.enqueue(entries).sent == 5
    tasks = batches_by_queue(redis)["registration"]
    assert [[len(one.message.payload) for one in task] for task in tasks] == [
        [400_000, 600_000],
        [48_577],
        [1_048_576],
        [400],
    ]


def test_a_claimed_message_is_enqueued_once(enqueuer, redis):
    one, two = entry(), entry()
    assert enqueuer.enqueue([one]) == EnqueueResult(sent=1)
    assert enqueuer.enqueue([one, two, one]) == EnqueueResult(sent=1)
    assert batches_by_queue(redis)["registration"] == [[one], [two]]
    assert 0 < redis.ttl(b"wakupush:claim:" + one.hash) <= 120


def test_of_claims_that_are_refused_none_is_taken(enqueuer, redis):
    """redis-py sends a refused pipeline once more: it must not meet claims of its own."""
    allowed, other = (next(one for one in iter(entry, None) if one.hash.startswith(byte)) for byte in (b"a", b"b"))
    keys = [*QUEUES, "_kombu*", "wakupush:watched*", "wakupush:claim:a*"]
    redis.acl_setuser("default", enabled=True, reset_keys=True, keys=keys)
    try:
        assert enqueuer.enqueue([allowed, other]) == EnqueueResult(dropped=2)
    finally:
        redis.acl_setuser("default", enabled=True, keys=["*"])
    assert enqueuer.enqueue([allowed, other]).sent == 2


def test_only_a_full_queue_is_left_to_reconcile(enqueuer, redis):
    enqueuer.settings = IngestSettings(queue_bytes=3_000_000)
    while enqueuer.enqueue([entry(size=100_000)]).sent:
        pass
    late = entry(size=100_000)
    assert enqueuer.enqueue([late, entry(PARTITIONED)]) == EnqueueResult(sent=1, dropped=1)
    assert 2_800_000 < redis.memory_usage("registration", samples=0) < 3_200_000
    assert len(batches_by_queue(redis)["dispatch"]) == 1
    assert not redis.exists(b"wakupush:claim:" + late.hash)
    redis.lpop("registration", 4)  # what workers take makes room
    assert enqueuer.enqueue([late]) == EnqueueResult(sent=1)


def test_one_poll_does_not_overfill_a_queue(enqueuer, redis):
    enqueuer.settings = IngestSettings(queue_bytes=20_000_000)
    assert enqueuer.enqueue([entry(size=1_000_000) for _ in range(60)]).dropped
    assert redis.memory_usage("registration", samples=0) < 22_000_000


def test_a_queue_may_have_a_quarter_of_redis_memory(enqueuer, redis):
    assert enqueuer._limit() == 160 * 2**20  # this Redis has no limit
    enqueuer._default_limit = (0, -math.inf)
    redis.config_set("maxmemory", 40_000_000)
    try:
        assert enqueuer._limit() == 10_000_000
    finally:
        redis.config_set("maxmemory", 0)


def test_a_long_queue_admits_messages_by_chance(redis_server, redis):
    """Whoever floods a queue has no more of it than others, message for message, whatever the order of arrival."""
    chosen = settings(redis_server.url, batch_size=1000, queue_bytes=100_000_000)
    with celery_app(chosen) as app:
        enqueuer = Enqueuer(app, redis, Routes.of(SERVER), chosen.ingest, draw=random.Random(7).random)
        share = {}
        for length in (0, 50, 75, 90, 100, 150):
            redis.delete("registration")
            if length:
                redis.rpush("registration", *[bytes(1_000_000)] * length)
            flood, honest = [entry() for _ in range(900)], [entry() for _ in range(100)]
            enqueuer.enqueue([*flood, *honest])
            claimed = {key.removeprefix(b"wakupush:claim:") for key in redis.keys("wakupush:claim:*")}
            share[length] = tuple(len(claimed & {e.hash for e in some}) / len(some) for some in (flood, honest))
            redis.flushdb()
    assert share[0] == (1, 1)
    assert share[50] == (pytest.approx(1, abs=0.05), pytest.approx(1, abs=0.08))  # the poll itself fills 2 % of it
    assert share[75] == (pytest.approx(0.5, abs=0.05), pytest.approx(0.5, abs=0.15))
    assert share[90] == (pytest.approx(0.2, abs=0.05), pytest.approx(0.2, abs=0.15))
    assert share[100] == share[150] == (0, 0)


def test_messages_from_the_future_are_not_enqueued(enqueuer, redis):
    """Else its row of the ledger would go where no partition is made yet."""
    assert enqueue.AHEAD_SECONDS <= (maintenance.DAYS_AHEAD - 2) * 86_400
    count = metrics.MESSAGES_AHEAD._value.get
    before = count()
    ahead = [entry(timestamp=time.time_ns() + int(days * 86_400e9)) for days in (1.01, 4, 400)]
    near = entry(timestamp=time.time_ns() + 86_000 * 10**9)
    assert enqueuer.enqueue([*ahead, entry("/waku/1/0x12345678/rfc26", timestamp=INT64_MAX), near]) == EnqueueResult(
        sent=1
    )
    assert batches_by_queue(redis)["registration"] == [[near]]
    assert [key.removeprefix(b"wakupush:claim:") for key in redis.keys("wakupush:claim:*")] == [near.hash]
    assert count() == before + 3


def test_a_redis_that_hangs_holds_up_one_poll(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # it takes connections and says nothing
        chosen = settings(f"redis://127.0.0.1:{hanging.getsockname()[1]}/0")
        with celery_app(chosen) as app, open_redis(chosen.redis) as redis:
            enqueuer = Enqueuer(app, redis, Routes.of(SERVER), chosen.ingest)
            start_time = time.monotonic()
            for _ in range(100):
                assert enqueuer.enqueue([entry()]) == EnqueueResult(dropped=1)
            assert time.monotonic() - start_time >= chosen.redis.timeout
            assert enqueuer._failures == 1
            monkeypatch.setattr(enqueue, "LEFT_ALONE_SECONDS", 0.0)
            wait_until(lambda: enqueuer.enqueue([entry()]) and enqueuer._failures == 2, timeout=120, what="it is asked")


def test_redis_outage_counts_messages_and_logs_the_gap():
    chosen = settings("redis://127.0.0.1:1/0")
    with celery_app(chosen) as app, Redis.from_url("redis://127.0.0.1:1/0") as nowhere:
        broken = Enqueuer(app, nowhere, Routes.of(SERVER), chosen.ingest)
        with capture_logs() as logs:
            for _ in range(30):
                assert broken.enqueue([entry(), entry()]) == EnqueueResult(dropped=2)
        assert [(log["event"], log["failures"]) for log in logs] == [("redis_failed", each) for each in (1, 5, 25)]
        poller = Poller("node", None, broken, SHARD, 0.05, None, Cache(5000))
        with capture_logs() as logs:
            poller._note_gap(2, 100.0)
            poller._note_gap(1, 101.0)
            poller._note_gap(0, 102.0)
            poller._note_gap(0, 103.0)
    assert [log["event"] for log in logs] == ["gap_begins", "gap_ends"]
    assert (logs[1]["since"], logs[1]["until"]) == (100.0, 102.0)


def test_an_answer_that_cannot_be_read_is_a_gap(enqueuer):
    """The node has handed out its messages and forgets them."""
    relay = Relay(iter([1, NodeUnreadable("too large"), NodeUnreachable("down"), 1]))
    poller = Poller("node", relay, enqueuer, SHARD, 0.05, None, Cache(1000))
    with capture_logs() as logs:
        for _ in range(4):
            poller._turn()
    assert [log["event"] for log in logs if log["log_level"] == "error"] == ["gap_begins", "gap_ends"]


def test_strangers_do_not_fill_the_log(enqueuer):
    """Each read has a malformed message, and one that is none."""

    class Node:
        def read(self, _):
            return RelayRead((entry().message,), 1)

    poller = Poller("node", Node(), enqueuer, SHARD, 0.05, None, Cache(1000))
    with capture_logs() as logs:
        for _ in range(30):
            poller._turn()
    warnings = [log for log in logs if log["event"] == "messages_malformed"]
    assert [(log["messages"], log["reads"]) for log in warnings] == [(1, 1), (1, 5), (1, 25)]


@dataclass
class Relay:
    """A node that has so many messages for us at each read, or fails."""

    counts: Iterator[int | NodeError]

    def read(self, _: str) -> RelayRead:
        count = next(self.counts)
        if isinstance(count, NodeError):
            raise count
        return RelayRead(tuple(entry().message for _ in range(count)), 0)


def test_what_comes_within_an_interval_shares_a_task(enqueuer, redis):
    poller = Poller("node", Relay(iter([0, 3, 10, 3])), enqueuer, SHARD, 0.05, None, Cache(5000))
    # Nothing new; some; as much as a task takes; some.
    assert [poller._turn() for _ in range(3)] == [0.05, 0.05, 0.0]
    redis.flushall()
    assert poller._turn() == 0.05


@pytest.mark.parametrize(
    ("interval", "capacity", "pauses"),
    [(0.05, 5000, [0.05, 0.2]), (0.05, 20, [0.05, 0.05]), (0.3, 5000, [0.3, 0.3])],
    ids=["backlog", "full node", "long interval"],
)
def test_pauses_are_longer_in_a_backlog(enqueuer, monkeypatch, interval, capacity, pauses):
    monkeypatch.setattr(enqueue, "RATE_SECONDS", 100.0)
    poller = Poller("node", Relay(iter([6, 6])), enqueuer, SHARD, interval, None, Cache(capacity))
    assert [poller._turn(), poller._turn()] == pauses


def test_wait_is_what_the_queue_has_by_its_rate(enqueuer, redis, monkeypatch):
    clock = SimpleNamespace(time=time.time, monotonic=lambda: clock.now, now=1.0)
    monkeypatch.setattr(enqueue, "time", clock)
    for _ in range(40):
        clock.now += 0.05
        redis.ltrim("registration", 0, 19)
        wait = enqueuer.enqueue([entry(size=1000) for _ in range(4)]).queue_wait
    assert wait == pytest.approx(1.0, rel=0.4)
    # Another queue in use has none: its messages must not come late because of these.
    assert enqueuer.enqueue([entry(PARTITIONED)]).queue_wait == 0.0
    assert enqueuer.enqueue([entry(size=1000)]).queue_wait == 0.0
    clock.now += enqueue.USED_SECONDS
    assert enqueuer.enqueue([entry(size=1000)]).queue_wait > 1.0
    redis.flushall()
    assert enqueuer.enqueue([entry()]).queue_wait == 0.0


def test_full_cache_is_read_again_at_once(enqueuer):
    """One cache may be for all shards; so it is full when together they had as many."""
    cache, count = Cache(6), metrics.CACHE_FULL.labels("node")._value.get
    one = Poller("node", Relay(iter([3, 3, 2])), enqueuer, SHARD, 0.05, None, cache)
    other = Poller("node", Relay(iter([3, 3])), enqueuer, "/waku/2/rs/16/64", 0.05, None, cache)
    before = count()
    with capture_logs() as logs:
        assert [one._turn(), other._turn(), one._turn(), other._turn(), one._turn()] == [0.05, 0.0, 0.0, 0.0, 0.05]
    assert count() == before + 3
    assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["cache_full"] * 2  # one for each shard


def test_own_beacons_do_not_end_a_silence(enqueuer, redis):
    """They arrive from the server's other nodes, and prove no way to anybody else."""
    gauge = metrics.LAST_MESSAGE.labels("quiet", SHARD)
    beacons = Beacons({}, (SHARD,), Hearing(("quiet",), (SHARD,)), redis, None)
    polls = [[entry(beacons.topic)], [entry(beacons.topic), entry()]]

    class Node:
        def read(self, _):
            return RelayRead(tuple(each.message for each in polls.pop(0)), 0)

    poller = Poller("quiet", Node(), enqueuer, SHARD, 0.05, None, Cache(1000), beacons)
    gauge.set(1)
    poller._turn()
    assert gauge._value.get() == 1
    poller._turn()
    assert gauge._value.get() > time.time() - 60


def test_enqueueing_recovers_after_a_redis_restart(enqueuer, redis_server):
    assert enqueuer.enqueue([entry()]) == EnqueueResult(sent=1)
    redis_server.restart()
    assert enqueuer.enqueue([entry()]).dropped + enqueuer.enqueue([entry()]).dropped <= 1
    assert enqueuer.enqueue([entry()]).sent == 1


def test_a_claim_is_released_if_sending_fails(enqueuer, monkeypatch):
    """Also if Redis hung, and was not asked to give the claim back."""
    message = entry()

    def time_out(*_, **__):
        raise OperationalError from TimedOut

    with monkeypatch.context() as patch:
        patch.setattr("wakupush.ingest.enqueue.send_entries", time_out)
        assert enqueuer.enqueue([message]) == EnqueueResult(dropped=1)
    assert enqueuer.enqueue([message]) == EnqueueResult(dropped=1)  # Redis is left alone
    enqueuer._left_alone = 0.0
    assert enqueuer.enqueue([message]) == EnqueueResult(sent=1)


def test_claims_are_given_back_once_by_several_threads(enqueuer, monkeypatch):
    """One gives claims back while another notes those of messages that it could not send."""
    first, second, released = entry(), entry(), []

    class Meanwhile(SimpleNamespace):
        @property
        def hash(self):
            enqueuer._unclaim()
            return second.hash

    def refuse(*_, **__):
        raise OperationalError

    monkeypatch.setattr("wakupush.ingest.enqueue.send_entries", refuse)
    monkeypatch.setattr("wakupush.redis.claims.release", lambda _, hashes: released.extend(hashes))
    enqueuer._send([(REGISTRATION, first)])
    enqueuer._send([(REGISTRATION, Meanwhile(message=second.message, opened=b""))])
    enqueuer._unclaim()
    assert released == [first.hash, second.hash]
