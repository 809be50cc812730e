"""Work in threads, in a process that may get no more of them."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread

import pytest

from wakupush.runtime.threads import submit


def fail(*_):
    raise RuntimeError("can't start new thread")


def test_a_result_and_an_error_reach_who_waits():
    with ThreadPoolExecutor(1) as threads:
        assert submit(threads, lambda: 7).result(30) == 7
        with pytest.raises(ZeroDivisionError):
            submit(threads, lambda: 1 / 0).result(30)


def test_what_finds_no_thread_is_not_done_later(monkeypatch):
    go, results = Event(), []
    with ThreadPoolExecutor(2) as threads:
        first = submit(threads, lambda: go.wait(30))
        with monkeypatch.context() as patch:
            patch.setattr(Thread, "start", fail)
            with pytest.raises(RuntimeError):
                submit(threads, lambda: results.append("refused"))
        go.set()
        assert first.result(30)
        submit(threads, lambda: results.append("taken")).result(30)
    assert results == ["taken"]
