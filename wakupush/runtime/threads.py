"""Starting work in the threads of a pool, where a process may get no more threads."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def submit(threads: ThreadPoolExecutor, work: Callable[[], T]) -> Future[T]:
    """Start work in a thread of a pool, or not at all.

    The pool itself leaves work that finds no thread in its queue. Another of its threads would do it later, though the
    caller was told of a failure. After such a failure the pool may do less at the same time, as it counts the thread
    that it did not get as idle.

    Raises:
        RuntimeError: no thread can be had, or the pool is closed; the work is not done.
    """
    future: Future[T] = Future()

    def run() -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - who waits for the result gets it
                future.set_exception(error)

    try:
        threads.submit(run)
    except RuntimeError:
        if future.cancel():
            raise
    return future
