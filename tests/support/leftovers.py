"""What a test starts ends with it: a child that it leaves is killed, and fails this test, no other.

A child that a fixture of a module or a session starts belongs to that fixture, and so does what a `Process` of it
starts later: a test may kill and restart a part of its module's server. So does what such a fixture lets a test start,
by `belonging_to_fixture`. Everything else belongs to the test.
"""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import psutil
import pytest

from support.forkserver import Forked
from wakupush.devnet.processes import Process

P = ParamSpec("P")
T = TypeVar("T")

#: A test that passed may have told a child to end, and not waited for it.
GRACE = 30.0

#: The fixtures that are being set up and outlive a test, innermost last.
_keepers: list[object] = []
#: Each child, and the fixture that it belongs to; None is the test that runs. That they are held here keeps an object
#: that nobody waited for from warning of it in another test.
_children: dict[subprocess.Popen | Forked, object | None] = {}
_processes: WeakKeyDictionary[Process, object | None] = WeakKeyDictionary()
_HAS_FAILED = pytest.StashKey[bool]()


def belonging_to_fixture(start: Callable[P, T]) -> Callable[P, T]:
    """Let what a function starts, whenever it is called, belong to the fixture that is being set up."""
    keeper = _keeper()

    @functools.wraps(start)
    def start_and_keep(*args: P.args, **options: P.kwargs) -> T:
        with _owned_by(keeper):
            return start(*args, **options)

    return start_and_keep


def _keeper() -> object | None:
    return _keepers[-1] if _keepers else None


@contextmanager
def _owned_by(keeper: object | None) -> Iterator[None]:
    _keepers.append(keeper)
    try:
        yield
    finally:
        _keepers.pop()


def _watch() -> None:
    """Note every child; a `with` around one that fails kills it, as `Popen` itself would wait for it, for ever."""
    child_init, child_exit = subprocess.Popen.__init__, subprocess.Popen.__exit__
    process_init, process_launch = Process.__init__, Process.launch

    @functools.wraps(child_init)
    def note_child(self, *args, **options):
        child_init(self, *args, **options)
        _children[self] = _keeper()

    @functools.wraps(child_exit)
    def kill_and_exit(self, kind, *rest):
        if kind is not None:
            self.kill()
        child_exit(self, kind, *rest)

    @functools.wraps(process_init)
    def note_process(self, *args, **options):
        process_init(self, *args, **options)
        _processes[self] = _keeper()

    @functools.wraps(process_launch)
    def launch(self):
        process_launch(self)
        _children[self._child] = _processes.get(self)

    subprocess.Popen.__init__, subprocess.Popen.__exit__ = note_child, kill_and_exit
    Process.__init__, Process.launch = note_process, launch


def _end(fixture: object | None, grace: float = 0.0) -> list[str]:
    """End the children of a fixture, or of the test; return the commands of those that had to be killed."""
    for child in [child for child in list(_children) if child.poll() is not None]:
        del _children[child]
    pids = []
    for child in [child for child, owner in list(_children.items()) if owner is fixture]:
        del _children[child]
        with suppress(subprocess.TimeoutExpired):
            child.wait(grace)
            continue
        # Of a `Process` the first three are the watching shell.
        words = child.args if isinstance(child.args, list) else [child.args]
        pids.append(" ".join(map(str, words[3:] if words[:1] == ["/bin/sh"] else words)))
        with suppress(psutil.NoSuchProcess):
            for descendant in psutil.Process(child.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    descendant.kill()
        child.kill()
        pipes = [child.stdin] if isinstance(child, Forked) else [child.stdin, child.stdout, child.stderr]
        for pipe in filter(None, pipes):
            with suppress(OSError):
                pipe.close()
        child.wait()
    return pids


def pytest_configure() -> None:
    _watch()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef):
    if fixturedef.scope == "function":
        return (yield)
    with _owned_by(fixturedef):
        return (yield)


def pytest_fixture_post_finalizer(fixturedef):
    """End what a fixture left: whoever runs now has nothing to do with it."""
    if fixturedef in _children.values():
        _end(fixturedef)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.failed:
        item.stash[_HAS_FAILED] = True
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    has_failed = item.stash.get(_HAS_FAILED, False)
    try:
        result = yield
    except BaseException:
        _end(None)
        raise
    if (leftovers := _end(None, 0.0 if has_failed else GRACE)) and not has_failed:
        pytest.fail("it left processes, which were killed: " + "; ".join(leftovers), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Let what a failed test had open be closed before the next one begins, which would be told of it."""
    result = yield
    if item.stash.get(_HAS_FAILED, False):
        sys.last_exc = sys.last_value = sys.last_traceback = None
        with warnings.catch_warnings(action="ignore"):
            gc.collect()
    return result
