"""Redis behind one address: it leads to another after a failover, and the old primary answers on as a replica."""

import os
import time

import pytest
from redis import Redis
from structlog.testing import capture_logs

from support.relay import Relay
from support.rows import IOS
from wakupush.devnet.redis import RedisServer
from wakupush.ingest.enqueue import Enqueuer
from wakupush.ingest.routing import Routes
from wakupush.model.entries import Entry
from wakupush.model.failures import Route
from wakupush.model.limits import MINUTE, Limit
from wakupush.model.queues import DISPATCH
from wakupush.model.waku_message import WakuMessage
from wakupush.redis.celery_app import celery_app
from wakupush.redis.limits import Limiter
from wakupush.runtime.connections.redis import open_redis
from wakupush.runtime.settings import Settings
from wakupush.server.delivery.breaker import Breaker

TOPIC = "/waku/1/0x00000001/rfc26"


class Pair:
    """Two servers and the address of the primary."""

    def __init__(self, first, second):
        self.first, self.second = first, second
        self.address = Relay(first.port)
        self.settings = Settings(redis={"url": f"redis://127.0.0.1:{self.address.port}/0", "timeout": 2})

    def fail_over(self):
        with Redis.from_url(self.first.url) as demoted:
            demoted.execute_command("REPLICAOF", "127.0.0.1", str(self.second.port))
        self.address.target = self.second.port


@pytest.fixture
def pair(tmp_path):
    with (
        RedisServer(tmp_path / "first", appendonly=False) as first,
        RedisServer(tmp_path / "second", appendonly=False) as second,
    ):
        pair = Pair(first, second)
        yield pair
        pair.address.close()


def test_a_command_goes_to_the_new_primary(pair):
    with open_redis(pair.settings.redis) as redis, Redis.from_url(pair.second.url) as second:
        redis.set("key", "old")
        pair.fail_over()
        redis.set("key", "new")
        assert second.get("key") == b"new"


def allows(limiter, name, most, key=""):
    limit = Limit(name, most, MINUTE, bytes(32), key=key)
    return limiter.ask([limit]) == [True]


def test_limits_are_counted_on_the_new_primary(pair):
    limiter = Limiter(open_redis(pair.settings.redis), draw=lambda: 0.999)
    assert allows(limiter, "push", 100)
    pair.fail_over()
    with capture_logs() as logs:
        assert [allows(limiter, "push", 2, "other") for _ in range(3)] == [True, True, False]
    assert logs == []


def test_a_breaker_opens_on_the_new_primary(pair):
    with open_redis(pair.settings.redis) as redis:
        clock = iter(range(100))
        breaker = Breaker(redis, pair.settings.breaker, 60.0, lambda: float(next(clock)))
        assert breaker.is_closed(IOS)
        pair.fail_over()
        for _ in range(pair.settings.breaker.faults):
            breaker.note(IOS, [Route.BROKEN], probe=False)
        assert not breaker.is_closed(IOS)


def test_ingest_enqueues_at_the_new_primary(pair):
    def entries():
        message = WakuMessage(payload=bytes(400), content_topic=TOPIC, timestamp=1)
        return [Entry("/waku/2/rs/16/32", os.urandom(32), time.time(), message)]

    with celery_app(pair.settings) as app, open_redis(pair.settings.redis) as redis:
        enqueuer = Enqueuer(app, redis, Routes({TOPIC: DISPATCH}), pair.settings.ingest)
        assert enqueuer.enqueue(entries()).sent == 1
        pair.fail_over()
        # Celery learns of it by a task that it cannot send, and connects anew for the next.
        assert enqueuer.enqueue(entries()).dropped == 1
        assert enqueuer.enqueue(entries()).sent == 1
        app.pool.force_close_all()
