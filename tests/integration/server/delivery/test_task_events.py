"""Events of deliveries for Flower, on a Redis that comes and goes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID

import pytest
from celery.events import EventReceiver
from prometheus_client import REGISTRY

from wakupush.devnet.parts.processes import wait_until
from wakupush.devnet.parts.redis import RedisServer
from wakupush.model.deliveries import Delivery, DeliveryState, Settlement
from wakupush.model.failures import Failure
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Installation
from wakupush.redis.celery_app import celery_app
from wakupush.runtime.settings import Settings
from wakupush.server.delivery import celery_events
from wakupush.server.delivery.celery_events import TaskEvents
from wakupush.server.delivery.posting import Lead, Posting


def delivery(number=1, **fields):
    return Delivery(
        **{
            "delivery_key": number.to_bytes(32, "big"),
            "installation": Installation(b"a" * 64, b"1" * 16),
            "platform": Platform.ANDROID,
            "notification_type": NotificationType.MESSAGE,
            "chat_id": b"secret chat",
            "message": b"secret message",
            "attempt": 2,
            "lease": UUID(int=number),
            "task_id": f"task-{number}",
            "trace_id": "trace",
            "seen": 0.0,
            "failure": Failure.RATE_LIMITED,
            **fields,
        }
    )


@pytest.fixture
def redis(tmp_path):
    with RedisServer(tmp_path, appendonly=False) as server:
        yield server


@pytest.fixture
def app(redis):
    app = celery_app(Settings(redis={"url": redis.url, "timeout": 2}))
    yield app
    app.close()


@pytest.fixture
def shown(app):
    events = TaskEvents(app, "dispatch-1@host", 10)
    yield events
    events.close()


@contextmanager
def receiving(app, shown):
    heard, stop = [], threading.Event()

    def receive():
        with app.connection() as connection:
            receiver = EventReceiver(connection, handlers={"*": heard.append}, app=app)
            while not stop.is_set():
                try:
                    receiver.capture(limit=None, timeout=0.2, wakeup=False)
                except TimeoutError:
                    continue

    def listens():
        shown.send([celery_events.started(delivery(99))])
        return heard

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        wait_until(listens, timeout=60, what="the receiver listens", interval=0.1)
        yield lambda: [event for event in heard if event["uuid"] != "task-99"]
    finally:
        stop.set()
        thread.join()


def lost():
    return REGISTRY.get_sample_value("wakupush_task_events_lost_total")


def test_an_attempt_from_its_beginning_to_its_end(app, shown):
    outcomes = [
        Settlement(delivery=delivery(), state=DeliveryState.PENDING, failure=Failure.GORUSH_FAILED, wait=1.0),
        Settlement(delivery=delivery(), state=DeliveryState.DEAD_LETTER, failure=Failure.GORUSH_FAILED),
        Settlement(delivery=delivery(), state=DeliveryState.DELIVERED),
    ]
    with receiving(app, shown) as heard:
        shown.send([*shown.begun(delivery()), *map(celery_events.ended, outcomes)])
        shown.show_deferred([Posting(delivery(), None, shown=True)])
        shown.send([])
        wait_until(lambda: len(heard()) == 6, timeout=60, what="all are heard")
    heard = heard()
    assert [event["type"] for event in heard] == [
        "task-received", "task-started", "task-retried", "task-failed", "task-succeeded", "task-deferred",
    ]  # fmt: skip
    assert {(event["uuid"], event["hostname"]) for event in heard} == {("task-1", "dispatch-1@host")}
    assert heard[0]["args"] == "(attempt 2 of 10, 1 android, after rate_limited)"
    assert heard[2]["exception"] == heard[3]["exception"] == "AttemptFailed('gorush_failed')"
    assert "secret" not in repr(heard)


def test_without_redis_events_are_lost_and_counted(app, redis, shown, monkeypatch):
    monkeypatch.setattr(celery_events, "CONNECT_SECONDS", 0.2)
    shown.send(shown.begun(delivery()))
    redis.stop()
    before = lost()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: shown.send(shown.begun(delivery())), range(50)))
    assert lost() - before == 100
    redis.start()
    monkeypatch.setattr(shown, "_rests_until", 0.0)
    with receiving(app, shown) as heard:
        shown.send([celery_events.started(delivery(2))])
        wait_until(heard, timeout=60, what="it is heard")
    assert [event["uuid"] for event in heard()] == ["task-2"]


def test_each_end_is_told_by_the_task_or_by_who_stores_it():
    settlement = Settlement(delivery=delivery(), state=DeliveryState.DELIVERED)
    for _ in range(200):
        lead = Lead()
        with ThreadPoolExecutor(2) as threads:
            told, left = threads.submit(lead.hand_over, settlement), threads.submit(lead.leave)
        assert told.result() == (left.result() is settlement)
        assert not lead.hand_over(settlement)
