"""Work that is done when its time has come, all that is due together."""

import threading
import time

import pytest
from structlog.testing import capture_logs

from wakupush.devnet.processes import wait_until
from wakupush.server.engine import background
from wakupush.server.engine.background import Later


def soon(seconds=0.0):
    return time.monotonic() + seconds


def test_delayed_work_is_done_in_order():
    later, results, reached = Later(), [], threading.Event()
    start = time.monotonic()
    later.do(soon(0.2), 1, results.extend, "c")
    later.do(soon(0.1), 1, results.extend, "b")
    later.do(soon(), 1, lambda items: results.extend(items) or reached.set(), "a")
    assert reached.wait(60)
    assert results[0] == "a"
    later.do(soon(), 1, lambda _: 1 / 0, None)
    later.close()
    assert results == ["a", "b", "c"]
    assert time.monotonic() - start >= 0.2


def test_a_logger_that_raises_stops_nothing(monkeypatch):
    def closed(*_):
        raise ValueError("I/O operation on closed file")

    monkeypatch.setattr(background.log, "exception", closed, raising=False)
    later, end = Later(), threading.Event()
    later.do(soon(), 1, lambda _: 1 / 0, None)
    later.do(soon(0.1), 1, lambda _: end.set(), None)
    assert end.wait(60)
    later.close()


def test_what_finds_no_thread_is_dropped_alone(monkeypatch):
    def fail(*_):
        raise RuntimeError("can't start new thread")

    later, results, reached = Later(), [], threading.Event()
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(later._threads, "submit", fail)
        later.do(soon(), 1, results.extend, "a")
        wait_until(lambda: logs, timeout=60, what="it is told of")
    assert [line["event"] for line in logs] == ["no_thread"]
    later.do(soon(), 1, lambda items: results.extend(items) or reached.set(), "b")
    assert reached.wait(60)
    later.close()
    assert results == ["b"]


@pytest.fixture
def hanging():
    """A thread whose work hangs until `go` is set, and the batches that it has done."""
    later, go, start, batches = Later(), threading.Event(), threading.Event(), []

    def work(items):
        start.set()
        go.wait(30)
        batches.append(items)

    later.do(soon(), 1, work, "first")
    assert start.wait(30)
    yield later, work, go, batches
    go.set()
    later.close()


def test_what_became_due_is_done_together(hanging):
    later, work, go, batches = hanging
    for number in range(40):
        later.do(soon(), 1, work, number)
    go.set()
    later.close()
    assert batches == [["first"], list(range(40))]


def test_what_finds_no_room_is_dropped(hanging, monkeypatch):
    later, work, go, batches = hanging
    monkeypatch.setattr(background, "BYTES", 10 * (background.ITEM_BYTES + 100))
    with capture_logs() as logs:
        for number in range(100):
            later.do(soon(), 100, work, number)
    assert [line["event"] for line in logs] == ["later_full"] * 3
    go.set()
    later.close()
    assert batches == [["first"], list(range(10))]


def test_closing_drops_what_is_due_too_late(hanging, monkeypatch):
    later, work, go, batches = hanging
    monkeypatch.setattr(background, "CLOSE_SECONDS", 0.2)
    later.do(soon(0.05), 1, work, "soon")
    later.do(soon(600), 1, work, "late")
    go.set()
    start_time = time.monotonic()
    later.close()
    assert time.monotonic() - start_time < 30
    assert batches == [["first"], ["soon"]]


def test_slow_work_does_not_hold_up_the_next():
    """Until all threads are busy; then what becomes due is done together."""
    later, go, batches, starts = Later(2), threading.Event(), [], threading.Semaphore(0)

    def work(items):
        starts.release()
        go.wait(30)
        batches.append(items)

    for number in range(2):
        later.do(soon(), 1, work, number)
        assert starts.acquire(timeout=30)
    for number in range(2, 5):
        later.do(soon(), 1, work, number)
    go.set()
    later.close()
    assert sorted(batches) == [[0], [1], [2, 3, 4]]


def test_prepared_work_waits_for_its_time():
    later, start_time = Later(), time.monotonic()
    later.wait_until(start_time + 0.1)
    assert time.monotonic() >= start_time + 0.1
    later.wait_until(start_time)
    later.close()
