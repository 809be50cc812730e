"""When a probe says that a process is to be restarted."""

import time

import pytest

from wakupush.server.beat.jobs import JOBS
from wakupush.server.beat.turns import STUCK_SECONDS, Turns
from wakupush.workers import pulse
from wakupush.workers.pulse import Pulse


@pytest.fixture
def now(monkeypatch):
    now = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_worker_without_redis_is_healthy_not_ready(now):
    noted = Pulse()
    now[0] += 1e6
    assert all(noted.healthy().values())
    assert not all(noted.ready().values())


@pytest.mark.parametrize(
    ("turned", "question_age", "checks"),
    [
        (1, 1, (True, True)),
        # Busy: it asks for no task until one of its processes is free.
        (1, pulse.DEAF_SECONDS - 1, (True, True)),
        (1, pulse.DEAF_SECONDS + 1, (True, False)),
        (pulse.STUCK_SECONDS + 1, pulse.STUCK_SECONDS + 1, (False, True)),
    ],
)
def test_a_connected_worker(now, turned, question_age, checks):
    noted = Pulse(connected_at=now[0] - 1e6, turned_at=now[0] - turned, asked_at=now[0] - question_age)
    assert tuple(noted.healthy().values()) == checks


def test_a_worker_that_has_just_connected_gets_time(now):
    assert all(Pulse(connected_at=now[0] - 1).ready().values())


def test_beat(now):
    turns = Turns()
    jobs = list(JOBS)
    assert all(turns.healthy().values())
    # The first run of what pauses for long may take long, too.
    assert turns.ready() == {job.__name__: job.__name__ == "prune" for job in jobs}
    for job in jobs:
        turns.begun[job] = time.monotonic()
        turns.worked[job] = job is not jobs[0]
    assert turns.ready() == {job.__name__: job is not jobs[0] for job in jobs}
    now[0] += JOBS[jobs[0]] + STUCK_SECONDS + 1
    healthy = turns.healthy()
    assert healthy[jobs[0].__name__] is False
    # What pauses for long may take long.
    assert healthy["prune"] is True
    turns.begun[jobs[0]] = time.monotonic()
    assert turns.healthy()[jobs[0].__name__] is True
