"""Stamps that lie ahead make a nwaku drop what others sent before ingest reads it: it is found in the Store."""

import os
import time
from threading import Event

import httpx2
import pytest
from redis import Redis
from structlog.testing import capture_logs

from support.devnet import serving
from wakupush.ingest.live.poller import Cache, Poller
from wakupush.ingest.reconcile.process import Reconciliation
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol import topics
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import watched
from wakupush.runtime import metrics
from wakupush.runtime.settings import PostgresSettings, RedisSettings, Settings, WakuSettings
from wakupush.waku.node import WakuNode

SHARD = "/waku/2/rs/16/32"
CAPACITY = 20


@pytest.fixture
def node_url(tmp_path, forkserver):
    options = ("--manners", "nwaku", "--shard", SHARD, "--cache-capacity", str(CAPACITY))
    with serving("waku", tmp_path / "log", *options, forkserver=forkserver) as (url, _):
        yield url


def test_flood_of_future_stamps_hides_nothing(node_url, dsn, redis_server):
    server = PrivateKey.generate().public_key
    personal, _ = topics.server_content_topics(server)
    settings = Settings(
        public_key=str(server),
        waku=WakuSettings(url=node_url, shards=(SHARD,), timeout=3, cache_capacity=CAPACITY),
        redis=RedisSettings(url=redis_server.url, timeout=1),
        postgres=PostgresSettings(dsn=dsn, timeout=1),
    )

    def publish(node, *, ahead):
        message = WakuMessage(
            payload=os.urandom(400), content_topic=personal, timestamp=time.time_ns() + int(ahead * 10**9)
        )
        node.publish(SHARD, message)
        return message_hash(SHARD, message)

    def claimed_hashes():
        return {key.removeprefix(b"wakupush:claim:") for key in redis.keys("wakupush:claim:*")}

    with Redis.from_url(redis_server.url) as redis, WakuNode(node_url) as node:
        redis.flushall()
        watched.mark_complete(redis, watched.begin_filling(redis))
        reconciliation = Reconciliation.open(settings, Event())
        registrations = reconciliation.recent[1]
        registrations.turn(SHARD)  # a look back, a moment ago
        flood = {publish(node, ahead=19) for _ in range(CAPACITY)}
        honest = {publish(node, ahead=0) for _ in range(5)}
        flood.add(publish(node, ahead=19))
        assert httpx2.get(f"{node_url}/dev/counters").json()["dropped_from_cache"] == 6
        poller = Poller("node", node, reconciliation.enqueuer, SHARD, 0.05, Event(), Cache(CAPACITY))
        full = metrics.CACHE_FULL.labels("node")._value.get()
        with capture_logs() as logs:
            assert poller._turn() == 0.0
        assert [log["event"] for log in logs if log["log_level"] == "warning"] == ["cache_full"]
        assert metrics.CACHE_FULL.labels("node")._value.get() == full + 1
        assert claimed_hashes() < flood  # live is blind
        turn = registrations.turn(SHARD)
        assert turn.since > time.time() - 60  # no look back, which is rarer
        assert honest <= claimed_hashes()
        reconciliation.close()
