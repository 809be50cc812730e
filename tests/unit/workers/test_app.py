"""What becomes of a task that fails."""

from types import SimpleNamespace

import pytest
from celery.exceptions import Reject
from prometheus_client import REGISTRY
from redis import RedisError
from structlog.testing import capture_logs

from wakupush.model.queues import DISPATCH
from wakupush.workers import app
from wakupush.workers.app import _given_back


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr(app, "SLOW_DOWN_SECONDS", (0.0, 0.0))


def task(*, redelivered):
    return SimpleNamespace(request=SimpleNamespace(delivery_info={"redelivered": redelivered}))


def returned():
    labels = {"queue": "dispatch", "reason": "outage"}
    return REGISTRY.get_sample_value("wakupush_tasks_returned_total", labels) or 0


@pytest.mark.parametrize("redelivered", [False, True])
def test_an_outage_gives_a_task_back_and_is_counted(redelivered):
    before = returned()
    with capture_logs() as logs, pytest.raises(Reject), _given_back(task(redelivered=redelivered), DISPATCH):
        raise RedisError
    assert returned() == before + 1
    assert logs == [{"event": "task_returned", "log_level": "warning", "queue": "dispatch", "error": "RedisError"}]


def test_an_error_of_ours_gives_a_task_back_once():
    before = returned()
    with capture_logs() as logs:
        with pytest.raises(Reject), _given_back(task(redelivered=False), DISPATCH):
            raise LookupError
        with _given_back(task(redelivered=True), DISPATCH):
            raise LookupError
    assert returned() == before
    assert [line["event"] for line in logs] == ["task_failed"] * 2
