"""How the jobs of the schedule are repeated."""

from threading import Event

import pytest

from wakupush.server import schedule


class Stopping(Event):
    """An event that notes how long it is waited for, and is set at the end of its patience."""

    def __init__(self, patience):
        super().__init__()
        self.patience = patience
        self.waited = []

    def wait(self, timeout=None):
        self.waited.append(timeout)
        if len(self.waited) == self.patience:
            self.set()
        return self.is_set()


@pytest.fixture
def repeat(monkeypatch):
    def repeat(work, pause, times):
        monkeypatch.setattr(schedule, "JOBS", {work: pause})
        stop = Stopping(times)
        schedule.run(None, stop, schedule.Turns())
        return stop.waited

    return repeat


def fail(_):
    raise ConnectionError


def test_an_hourly_job_that_failed_runs_again_after_a_minute(repeat):
    assert repeat(fail, 3600.0, 3) == [60.0] * 3
