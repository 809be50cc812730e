"""What follows batches: beside the next ones, and never more than is bounded."""

import signal
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from structlog.testing import capture_logs

from wakupush.devnet.processes import wait_until
from wakupush.server.engine import background as module
from wakupush.server.engine.background import Followers


@pytest.fixture
def followers():
    opened = Followers()
    yield opened
    opened.close()


def test_handing_over_does_not_wait(followers):
    go, results = Event(), []
    followers.do(1, lambda: (go.wait(30), results.append("followed up")))
    assert not results
    go.set()
    followers.wait()
    assert results == ["followed up"]


@pytest.mark.parametrize(
    ("sizes", "next_size"),
    [([1] * module.BATCHES, 1), ([module.BYTES - 1], 2), ([1], module.BYTES), ([2 * module.BYTES], 0)],
)
def test_full_followers_take_in_no_more(followers, sizes, next_size):
    go, end = Event(), Event()
    for size in sizes:
        followers.do(size, lambda: go.wait(30))
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(followers.do, next_size, end.set)
        time.sleep(0.05)
        assert not waits.done()
        go.set()
        waits.result(30)
    assert end.wait(30)


def test_a_batch_larger_than_all_room_goes_alone(followers):
    end = Event()
    followers.do(100 * module.BYTES, end.set)
    assert end.wait(30)


def test_a_failure_is_logged_and_leaves_room(followers):
    with capture_logs() as logs:
        for _ in range(2 * module.BATCHES):
            followers.do(module.BYTES, lambda: 1 / 0)
        followers.wait()
    assert [line["event"] for line in logs] == ["unfinished"] * 2 * module.BATCHES


def test_time_limit_while_it_waits_drops_no_batch(followers):
    """A soft time limit raises in the main thread, wherever that waits."""
    go, end = Event(), Event()
    for _ in range(module.BATCHES):
        followers.do(1, lambda: go.wait(30))

    def limit(*_):
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, limit)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(SoftTimeLimitExceeded):
            followers.do(1, end.set)
    finally:
        signal.signal(signal.SIGALRM, before)
    go.set()
    assert end.wait(30)
    followers.wait()


def test_batch_that_finds_no_thread_takes_no_room(followers, monkeypatch):
    def submit(*_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(followers._threads, "submit", submit)
        for _ in range(module.BATCHES):
            with pytest.raises(RuntimeError):
                followers.do(module.BYTES, lambda: None)
    end = Event()
    followers.do(module.BYTES, end.set)
    assert end.wait(30)
    followers.wait()


def test_closing_does_what_is_left():
    numbers, start = [], Event()
    followers = Followers()
    for number in range(module.BATCHES):
        followers.do(1, lambda number=number: (start.wait(0.05), numbers.append(number)))
    followers.close()
    assert sorted(numbers) == list(range(module.BATCHES))


def test_batches_are_followed_up_side_by_side(followers):
    together = []

    def work():
        together.append(1)
        wait_until(lambda: len(together) == module.BATCHES, timeout=30, what="the others")

    for _ in range(module.BATCHES):
        followers.do(1, work)
    followers.wait()
    assert len(together) == module.BATCHES
