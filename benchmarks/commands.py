"""Running commands, and measuring their time and memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

import psutil


@dataclass(frozen=True)
class Taken:
    """What a command took: its own processes and those that worked for it."""

    printed: str
    seconds: float
    cpu_seconds: float
    #: The most that all of them had at the same time, resident.
    bytes: int


def measured(name: str, *words: str, environment: dict[str, str], others: Callable[[], list[int]] = list) -> Taken:
    """Run a module of Python to its end, and print and return what it took.

    Args:
        name: for the reader.
        words: the module, and its arguments.
        environment: of the process.
        others: returns the pids of processes that work for it.
    """
    known = others()
    begin = time.perf_counter()
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen([sys.executable, "-m", *words], env=environment, stdout=subprocess.PIPE, stderr=errors) as run,
    ):
        with Peak([run.pid, *known]) as peak:
            printed, _ = run.communicate()
        seconds = time.perf_counter() - begin
        if run.returncode:
            errors.seek(0)
            sys.exit(errors.read().decode())
    taken = Taken(printed.decode(), seconds, peak.cpu_seconds, peak.bytes)
    print(f"  {name:<18}{seconds:8.1f} s{taken.cpu_seconds:8.1f} s of CPU{taken.bytes / 1e6:8.0f} MB", flush=True)
    return taken


class Peak:
    """Watches the resident memory and CPU time of processes and of all that they start."""

    def __init__(self, pids: list[int]) -> None:
        self.bytes = 0
        self._cpu: dict[int, list[float]] = {}
        self._pids, self._over = pids, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    @property
    def cpu_seconds(self) -> float:
        return sum(last - first for first, last in self._cpu.values())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        old = set(self._pids[1:])  # what they did before does not count
        while not self._over.wait(0.2):
            memory = 0
            for process in _family(self._pids):
                with suppress(psutil.NoSuchProcess):
                    memory += process.memory_info().rss
                    times = process.cpu_times()
                    used = times.user + times.system
                    self._cpu.setdefault(process.pid, [used if process.pid in old else 0.0, used])[1] = used
            self.bytes = max(self.bytes, memory)


def _family(pids: list[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            root = psutil.Process(pid)
            yield root
            yield from root.children(recursive=True)


@contextmanager
def watched() -> Iterator[Callable[[], list[int]]]:
    """Yield a function that returns the processes that were started in the block: the cluster's."""
    before = {child.pid for child in psutil.Process().children()}
    yield lambda: [child.pid for child in psutil.Process().children() if child.pid not in before]
