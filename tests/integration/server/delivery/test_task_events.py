"""Events of deliveries for Flower, on a Redis that comes and goes."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
from celery.events import EventReceiver
from prometheus_client import REGISTRY

from support import rows
from wakupush.devnet.processes import wait_until
from wakupush.devnet.redis import RedisServer
from wakupush.model.deliveries import DeliveryState, Settlement
from wakupush.model.failures import Failure
from wakupush.model.platforms import Platform
from wakupush.redis.celery_app import celery_app
from wakupush.runtime.settings import Settings
from wakupush.server.delivery import celery_events
from wakupush.server.delivery.celery_events import TaskEvents
from wakupush.server.delivery.posting import DUE_ATTEMPT, Posting, Reporter


def delivery(number=1):
    secret = {"chat_id": b"secret chat", "message": b"secret message"}
    return rows.delivery(number, platform=Platform.ANDROID, attempt=2, failure=Failure.RATE_LIMITED, **secret)


def due_posting(number=1):
    return Posting(delivery(number), None, DUE_ATTEMPT)


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
def task_events(app):
    events = TaskEvents(app, "dispatch-1@host", 10)
    yield events
    events.close()


@contextmanager
def receiving(app, task_events):
    received_events = []
    connection = app.connection()
    receiver = EventReceiver(connection, handlers={"*": received_events.append}, app=app)

    def receive():
        while not receiver.should_stop:
            with suppress(TimeoutError):
                receiver.capture(limit=None, timeout=0.2, wakeup=False)

    def listens():
        task_events.report_deferred([due_posting(99)])
        return received_events

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        wait_until(listens, timeout=60, what="the receiver listens", interval=0.1)
        yield lambda: [event for event in received_events if event["uuid"] != "task-99"]
    finally:
        receiver.should_stop = True
        thread.join()
        connection.release()


def lost_events():
    return REGISTRY.get_sample_value("wakupush_task_events_lost_total")


def test_an_attempt_from_its_beginning_to_its_end(app, task_events):
    outcomes = [
        Settlement(delivery=delivery(), state=DeliveryState.PENDING, failure=Failure.GORUSH_FAILED, wait=1.0),
        Settlement(delivery=delivery(), state=DeliveryState.DEAD_LETTER, failure=Failure.GORUSH_FAILED),
        Settlement(delivery=delivery(), state=DeliveryState.DELIVERED),
    ]
    with receiving(app, task_events) as received_events:
        task_events.report_beginnings([due_posting()])
        for outcome in outcomes:
            task_events.report_outcomes([due_posting()], [outcome])
        task_events.report_deferred([due_posting()])
        task_events.send([])
        wait_until(lambda: len(received_events()) == 6, timeout=60, what="all are heard")
    received_events = received_events()
    assert [event["type"] for event in received_events] == [
        "task-received", "task-started", "task-retried", "task-failed", "task-succeeded", "task-deferred",
    ]  # fmt: skip
    assert {(event["uuid"], event["hostname"]) for event in received_events} == {("task-1", "dispatch-1@host")}
    assert received_events[0]["args"] == "(android, attempt 2 of 10, after rate_limited)"
    assert received_events[2]["exception"] == received_events[3]["exception"] == "AttemptFailed('gorush_failed')"
    assert "secret" not in repr(received_events)


def test_without_redis_events_are_lost_and_counted(app, redis, task_events, monkeypatch):
    monkeypatch.setattr(celery_events, "CONNECT_SECONDS", 0.2)
    task_events.report_beginnings([due_posting()])
    redis.stop()
    before = lost_events()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: task_events.report_beginnings([due_posting()]), range(50)))
    assert lost_events() - before == 100
    redis.start()
    monkeypatch.setattr(task_events, "_rests_until", 0.0)
    with receiving(app, task_events) as received_events:
        task_events.report_beginnings([due_posting(2)])
        wait_until(received_events, timeout=60, what="it is heard")
    assert {event["uuid"] for event in received_events()} == {"task-2"}


def test_the_task_or_a_thread_reports_an_outcome():
    settlement = Settlement(delivery=delivery(), state=DeliveryState.DELIVERED)
    for _ in range(200):
        reporter = Reporter(by_task=True)
        with ThreadPoolExecutor(2) as threads:
            by_task, end = threads.submit(reporter.hand_over, settlement), threads.submit(reporter.end_task)
        assert by_task.result() == (end.result() is settlement)
        assert not reporter.hand_over(settlement)
