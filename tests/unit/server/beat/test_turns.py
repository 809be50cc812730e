"""How the jobs of the schedule are repeated."""

from threading import Event

import pytest
from redis import RedisError
from structlog.testing import capture_logs

from wakupush.server.beat import turns


class Stopping(Event):
    """An event that notes how long it is waited for, and is set at the end of its patience."""

    def __init__(self, patience):
        super().__init__()
        self.patience = patience
        self.timeouts = []

    def wait(self, timeout=None):
        self.timeouts.append(timeout)
        if len(self.timeouts) == self.patience:
            self.set()
        return self.is_set()


@pytest.fixture
def repeat(monkeypatch):
    def repeat(work, pause, times):
        monkeypatch.setattr(turns, "JOBS", {work: pause})
        stop = Stopping(times)
        turns.run(None, stop, turns.Turns())
        return stop.timeouts

    return repeat


def fail(_):
    raise RedisError


def test_an_hourly_job_that_failed_runs_again_after_a_minute(repeat):
    assert repeat(fail, 3600.0, 3) == [60.0] * 3


def test_a_job_that_fails_often_is_told_of_seldom(repeat):
    with capture_logs() as logs:
        pauses = repeat(fail, 0.1, 200)
    assert pauses[:6] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0]
    assert set(pauses[6:]) == {5.0}
    assert [(log["event"], log["failures"]) for log in logs] == [("job_failed", each) for each in (1, 5, 25, 100, 200)]


def test_a_job_that_works_again_has_its_own_pause(repeat):
    results = iter([fail, fail, str, fail])

    def work(resources):
        next(results)(resources)

    assert repeat(work, 1.0, 4) == [2.0, 4.0, 1.0, 2.0]
