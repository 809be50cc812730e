"""Every retry shows in Flower: real workers, and a receiver of Celery's events in Flower's place."""

import re
import threading
import time
from collections import Counter
from contextlib import contextmanager

import httpx2
import pytest
from celery.events import EventReceiver
from celery.events.state import State

from e2e.users import User
from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.redis.celery_app import celery_app
from wakupush.runtime.settings import RedisSettings, Settings
from wakupush.waku.node import WakuNode

ARGUMENT = re.compile(r"\((ios|android), attempt \d+ of 100(, after (\w+))?(, \d+ together)?\)")


@pytest.fixture(scope="module")
def stack(start_stack):
    return start_stack(
        concurrency=2,
        settings={
            "WAKUPUSH_DELIVERY__FIRST_WAIT": "0.2",
            "WAKUPUSH_DELIVERY__SLOW_FIRST_WAIT": "0.2",
            "WAKUPUSH_DELIVERY__MAX_WAIT": "1",
            "WAKUPUSH_DELIVERY__MAX_ATTEMPTS": "100",
            "WAKUPUSH_BREAKER__FAULTS": "12",
            "WAKUPUSH_BREAKER__PAUSE": "0.5",
            # The shortest lease that the settings allow with such a time-out.
            "WAKUPUSH_GORUSH__TIMEOUT": "4",
            "WAKUPUSH_GORUSH__CONNECT_TIMEOUT": "1",
            "WAKUPUSH_DELIVERY__LEASE": "30",
        },
    )


class Flower:
    """What Flower would show."""

    def __init__(self):
        self.events = []
        self.state = State()

    def take(self, event):
        if event["type"].startswith("task-"):
            self.events.append(dict(event))
        self.state.event(event)

    def of(self, task_id, *kinds):
        return [event for event in self.events if event.get("uuid") == task_id and event["type"][5:] in kinds]

    def retried(self):
        return Counter(event["uuid"] for event in self.events if event["type"] == "task-retried")


@pytest.fixture
def flower(stack):
    app = celery_app(Settings(redis=RedisSettings(url=stack.redis_url)))
    flower = Flower()
    with app.connection() as connection:
        receiver = EventReceiver(connection, handlers={"*": flower.take}, app=app)
        thread = threading.Thread(target=receiver.capture, kwargs={"limit": None, "wakeup": False})
        thread.start()
        wait_until(lambda: flower.state.event_count, timeout=120, what="a worker's heartbeat is heard")
        yield flower
        receiver.should_stop = True
        thread.join()
    app.close()


class Client(User):
    """A user with devices."""

    def registered_anew(self, **fields):
        """Register a device, and wait for the answer."""
        self.registered = messages.registration(self.key, self.server, **fields)
        self.register()
        self.wait(replies=len(self.replies) + 1)
        return self.registered

    def deliveries(self):
        """Return task id and state of this user's deliveries."""
        with self.stack.connect() as connection:
            rows = connection.execute(
                "SELECT task_id, state FROM deliveries WHERE key_hash = %s", [self.key.public_key.key_hash]
            ).fetchall()
        return dict(rows)

    def wait_for(self, states, count, timeout=300):
        wait_until(
            lambda: Counter(self.deliveries().values()) == {states: count}, timeout=timeout, what=f"{count} {states}"
        )
        return list(self.deliveries())


@pytest.fixture
def client(stack):
    with WakuNode(stack.node_url) as node:
        client = Client(stack, node)
        yield client
        client.observer.close()


@contextmanager
def counted(stack, flower):
    """Check that what happens meanwhile leaves as many events `task-retried` as rows that went back to pending."""
    query = """
    SELECT count(*) FILTER (WHERE kind IN ('failed', 'unknown')) - count(*) FILTER (WHERE kind = 'dead_letter')
    FROM delivery_history WHERE failure NOT IN ('token_unregistered')
    """
    with stack.connect() as connection:
        [before] = connection.execute(query).fetchone()
        earlier_count = flower.retried().total()
        yield
        [after] = connection.execute(query).fetchone()
    wait_until(
        lambda: flower.retried().total() - earlier_count >= after - before, timeout=60, what="the events are heard"
    )
    assert flower.retried().total() - earlier_count == after - before > 0


def test_an_outage_of_gorush_with_several_deliveries(stack, client, flower):
    client.registered_anew()
    with counted(stack, flower):
        stack.gorush.kill()
        client.ask_for_push(12)
        client.ask_for_push(3)
        wait_until(lambda: len(client.deliveries()) == 15, timeout=120, what="all are taken on")
        task_ids = list(client.deliveries())
        wait_until(lambda: flower.retried().total() >= 30, timeout=300, what="there were retries")
        states = {flower.state.tasks[task_id].state for task_id in task_ids if task_id in flower.state.tasks}
        assert "RETRY" in states
        assert states <= {"RETRY", "RECEIVED", "STARTED", "DEFERRED"}
        client.observer.gorush_restarted()
        stack.gorush.start()
        assert set(client.wait_for("delivered", 15)) == set(task_ids)
        retried = flower.retried()
        for task_id in task_ids:
            if not retried[task_id]:
                continue  # its first attempt got through, or waited behind the breaker
            wait_until(lambda: flower.of(task_id, "succeeded"), timeout=60, what="it ends")  # noqa: B023
            assert flower.state.tasks[task_id].state == "SUCCESS"
            assert len(flower.of(task_id, "succeeded")) == 1
            for event in flower.of(task_id, "received"):
                assert event["name"] == "wakupush.deliver"
                assert ARGUMENT.fullmatch(event["args"])
            assert {event["exception"] for event in flower.of(task_id, "retried")} == {
                "AttemptFailed('gorush_unreachable')"
            }


def test_failed_delivery_ends_its_task(stack, client, flower):
    content = client.registered_anew(device_token="unavailable")
    with counted(stack, flower):
        client.ask_for_push()
        [task_id] = client.wait_for("pending", 1)
        wait_until(lambda: flower.retried()[task_id] >= 2, timeout=120, what="it is retried")
        client.registered_anew(version=2, installation_id=content.installation_id, device_token="dead")
        client.wait_for("failed", 1)
        wait_until(lambda: flower.of(task_id, "failed"), timeout=60, what="it ends")
        assert flower.state.tasks[task_id].state == "FAILURE"
        assert "token_unregistered" in flower.of(task_id, "failed")[0]["exception"]
        assert len(flower.of(task_id, "failed")) == 1


def test_posts_that_outlive_their_task(stack, client, flower):
    client.registered_anew(device_token="slow-2500-flaky-2")
    with counted(stack, flower):
        client.ask_for_push()
        wait_until(lambda: len(client.deliveries()) == 1, timeout=120, what="it is taken on")
        [task_id] = client.wait_for("delivered", 1)
        wait_until(lambda: flower.of(task_id, "succeeded"), timeout=60, what="it ends")
        assert flower.retried()[task_id] == 2
        assert len(flower.of(task_id, "succeeded")) == 1
        assert flower.state.tasks[task_id].state == "SUCCESS"
        assert not flower.of(task_id, "failed")


def test_first_attempts_that_succeed_are_not_shown(client, flower):
    client.registered_anew()
    client.ask_for_push(3)
    task_ids = client.wait_for("delivered", 3)
    # What is told later is heard later: a delivery that fails has events.
    earlier_count = flower.retried().total()
    client.registered_anew(device_token="throttled")
    client.ask_for_push()
    wait_until(lambda: flower.retried().total() > earlier_count, timeout=60, what="a later retry is heard of")
    assert not [event for event in flower.events if event["uuid"] in task_ids]


def test_killed_workers_deliveries_return(stack, client, flower):
    client.registered_anew(device_token="slow-3000")
    with counted(stack, flower):
        client.ask_for_push()
        [task_id] = client.wait_for("posting", 1)
        start_time = time.monotonic()
        stack.workers["dispatch"].kill()
        assert client.deliveries() == {task_id: "posting"}
        stack.workers["dispatch"].start()
        client.wait_for("delivered", 1)
        assert time.monotonic() - start_time > 20
        wait_until(lambda: flower.of(task_id, "succeeded"), timeout=60, what="it ends")
        [retried] = flower.of(task_id, "retried")
        assert retried["exception"] == "AttemptFailed('lease_lost')"
        with stack.connect() as connection:
            row = connection.execute("SELECT attempt FROM deliveries WHERE task_id = %s", [task_id]).fetchone()
        assert row == (2,)


def test_a_slow_platform_holds_up_nothing_else(stack, client):
    apple = client.registered_anew()
    client.registered_anew(token_type=2, apn_topic="", device_token="slow-60000")
    client.ask_for_push(40)
    start_time = time.monotonic()
    client.registered = apple
    client.ask_for_push()
    client.registered_anew()
    with stack.connect() as connection:
        query = "SELECT count(*) FROM deliveries WHERE platform = 1 AND state = 'delivered' AND key_hash = %s"
        wait_until(
            lambda: connection.execute(query, [client.key.public_key.key_hash]).fetchone() == (1,),
            timeout=60,
            what="iOS is delivered",
        )
    # The first task waits 1.5 s for Firebase, as long as its answer may.
    assert time.monotonic() - start_time < 16
    httpx2.delete(f"{stack.gorush_url}/dev/faults")
