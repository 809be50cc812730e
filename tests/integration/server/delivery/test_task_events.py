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


def due(number=1):
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
def shown(app):
    events = TaskEvents(app, "dispatch-1@host", 10)
    yield events
    events.close()


@contextmanager
def receiving(app, shown):
    heard = []
    connection = app.connection()
    receiver = EventReceiver(connection, handlers={"*": heard.append}, app=app)

    def receive():
        while not receiver.should_stop:
            with suppress(TimeoutError):
                receiver.capture(limit=None, timeout=0.2, wakeup=False)

    def listens():
        shown.report_deferred([due(99)])
        return heard

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        wait_until(listens, timeout=60, what="the receiver listens", interval=0.1)
        yield lambda: [event for event in heard if event["uuid"] != "task-99"]
    finally:
        receiver.should_stop = True
        thread.join()
        connection.release()


def lost():
    return REGISTRY.get_sample_value("wakupush_task_events_lost_total")


def test_an_attempt_from_its_beginning_to_its_end(app, shown):
    outcomes = [
        Settlement(delivery=delivery(), state=DeliveryState.PENDING, failure=Failure.GORUSH_FAILED, wait=1.0),
        Settlement(delivery=delivery(), state=DeliveryState.DEAD_LETTER, failure=Failure.GORUSH_FAILED),
        Settlement(delivery=delivery(), state=DeliveryState.DELIVERED),
    ]
    with receiving(app, shown) as heard:
        shown.report_beginnings([due()])
        for outcome in outcomes:
            shown.report_outcomes([due()], [outcome])
        shown.report_deferred([due()])
        shown.send([])
        wait_until(lambda: len(heard()) == 6, timeout=60, what="all are heard")
    heard = heard()
    assert [event["type"] for event in heard] == [
        "task-received", "task-started", "task-retried", "task-failed", "task-succeeded", "task-deferred",
    ]  # fmt: skip
    assert {(event["uuid"], event["hostname"]) for event in heard} == {("task-1", "dispatch-1@host")}
    assert heard[0]["args"] == "(android, attempt 2 of 10, after rate_limited)"
    assert heard[2]["exception"] == heard[3]["exception"] == "AttemptFailed('gorush_failed')"
    assert "secret" not in repr(heard)


def test_without_redis_events_are_lost_and_counted(app, redis, shown, monkeypatch):
    monkeypatch.setattr(celery_events, "CONNECT_SECONDS", 0.2)
    shown.report_beginnings([due()])
    redis.stop()
    before = lost()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: shown.report_beginnings([due()]), range(50)))
    assert lost() - before == 100
    redis.start()
    monkeypatch.setattr(shown, "_rests_until", 0.0)
    with receiving(app, shown) as heard:
        shown.report_beginnings([due(2)])
        wait_until(heard, timeout=60, what="it is heard")
    assert {event["uuid"] for event in heard()} == {"task-2"}


def test_the_task_or_a_thread_reports_an_outcome():
    settlement = Settlement(delivery=delivery(), state=DeliveryState.DELIVERED)
    for _ in range(200):
        reporter = Reporter(by_task=True)
        with ThreadPoolExecutor(2) as threads:
            by_task, end = threads.submit(reporter.hand_over, settlement), threads.submit(reporter.end_task)
        assert by_task.result() == (end.result() is settlement)
        assert not reporter.hand_over(settlement)
