"""What dies comes back, and what was sent meanwhile is handled."""

import os
import re
import signal
import time

import httpx2
import pytest
from redis import Redis

from e2e.users import User
from wakupush.devnet.processes import free_port, wait_until
from wakupush.devnet.stack import SHARDS
from wakupush.model.queues import DISPATCH
from wakupush.pb.push_notification_pb2 import (
    PushNotificationRegistrationResponse,
)
from wakupush.waku.node import WakuNode


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(
        settings={
            "WAKUPUSH_DELIVERY__FIRST_WAIT": "0.2",
            "WAKUPUSH_DELIVERY__MAX_WAIT": "1",
            "WAKUPUSH_DELIVERY__MAX_ATTEMPTS": "100",  # a slow start of gorush must not end them
            "WAKUPUSH_BREAKER__PAUSE": "1",  # attempts follow so closely that a dead gorush opens it
            "WAKUPUSH_GORUSH__CONCURRENCY": "4",
            "WAKUPUSH_INGEST__CLAIM_TTL": "5",  # what a dying Redis swallows, reconcile may enqueue soon
        }
    )


@pytest.fixture
def client(stack):
    with WakuNode(stack.node_url) as node:
        client = User(stack, node)
        yield client
        client.observer.close()


def fault(stack, **fields):
    httpx2.post(f"{stack.gorush_url}/dev/faults", json={"path": "/api/push", **fields}).raise_for_status()


def test_postgres_is_killed_and_restarted(stack, client):
    stack.postgres.kill()
    client.register()
    time.sleep(0.5)
    stack.postgres.start()
    client.wait(replies=1, timeout=60)
    assert PushNotificationRegistrationResponse.FromString(client.replies[0][0].inner).success


def test_redis_is_killed_while_tasks_are_under_way(stack, client):
    """The workers' main processes outlive it, again and again."""
    worker = stack.workers["dispatch"]
    pid = worker.pid
    client.register()
    client.wait(replies=1, timeout=60)
    fault(stack, kind="delay", seconds=1.0)
    with stack.connect() as connection:

        def posting():
            return connection.execute("SELECT count(*) FROM deliveries WHERE state = 'posting'").fetchone()[0]

        for number in range(3):
            client.ask_for_push()
            wait_until(posting, timeout=300, what="a push is under way")
            stack.redis.kill()
            time.sleep(2)  # the task ends meanwhile, and cannot be acknowledged
            stack.redis.start()
            # The worker asks for tasks again, and gets them.
            client.ask_for_push()
            client.wait(replies=2 * number + 3, delivered=2 * number + 2, timeout=60)
    httpx2.delete(f"{stack.gorush_url}/dev/faults").raise_for_status()
    assert worker.running
    assert worker.pid == pid


def test_redis_refuses_writes(stack, client):
    """A replica that took its place, or no memory left: workers outlive what it answers, and go on."""
    worker = stack.workers["dispatch"]
    pid = worker.pid
    client.register()
    client.wait(replies=1, timeout=60)
    refusals = [
        (("REPLICAOF", "127.0.0.1", str(free_port())), ("REPLICAOF", "NO", "ONE")),
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0")),
    ]
    with Redis.from_url(stack.redis.url) as redis:
        for number, (refuse, heal) in enumerate(refusals):
            # A task waits when it begins: a Redis that is full hands it out, and refuses to note who has it.
            os.kill(pid, signal.SIGSTOP)
            client.ask_for_push()
            wait_until(lambda: redis.llen(DISPATCH.name), timeout=120, what="the request is queued")
            redis.execute_command(*refuse)
            try:
                os.kill(pid, signal.SIGCONT)
                time.sleep(3)
                assert worker.running
            finally:
                redis.execute_command(*heal)
            # What was taken and not noted comes back by reconcile.
            client.wait(replies=number + 2, delivered=number + 1, timeout=60)
    assert worker.running
    assert worker.pid == pid


def test_the_node_is_restarted(stack, client):
    def subscriptions():
        text = httpx2.get(f"{stack.ingest_url}/metrics", trust_env=False).text
        return float(re.findall(r"^wakupush_subscriptions_total{.*} (.*)$", text, re.MULTILINE)[0])

    before = subscriptions()
    httpx2.post(f"{stack.node_url}/dev/restart").raise_for_status()
    wait_until(lambda: subscriptions() == before + len(SHARDS), timeout=120, what="ingest subscribed again")
    client.register()
    client.wait(replies=1)


def test_answer_is_on_time_while_gorush_hangs(stack, client):
    client.register()
    client.wait(replies=1)
    fault(stack, kind="hang", times=1)
    send_time = time.time()
    client.ask_for_push()
    client.wait(replies=2)
    [report] = client.reports()
    assert report.success
    assert client.replies[1][1] - send_time < 2.5  # a sender waits 3 s before it tries another server
    # Workers are free meanwhile.
    client.ask_for_push()
    client.wait(replies=3, delivered=1)
