"""Running commands, and measuring their time and memory."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from typing import Self

import psutil


def measured(name: str, *words: str, environment: dict[str, str]) -> None:
    """Run a module of Python to its end, and print what it took, with all processes that it started.

    Args:
        name: for the reader.
        words: the module, and its arguments.
        environment: of the process.
    """
    begin = time.perf_counter()
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            [sys.executable, "-m", *words], env=environment, stdout=subprocess.DEVNULL, stderr=errors
        ) as run,
    ):
        with Peak(run.pid) as peak:
            run.wait()
        seconds = time.perf_counter() - begin
        if run.returncode:
            errors.seek(0)
            sys.exit(errors.read().decode())
    print(f"  {name:<18}{seconds:8.1f} s{peak.cpu_seconds:8.1f} s of CPU{peak.bytes / 1e6:8.0f} MB", flush=True)


class Peak:
    """Watches the CPU time of a process and of all that it starts, and the most resident memory that they have."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._cpu: dict[int, float] = {}
        self._pid, self._over = pid, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    @property
    def cpu_seconds(self) -> float:
        return sum(self._cpu.values())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        root = psutil.Process(self._pid)
        while not self._over.wait(0.2):
            memory, family = 0, [root]
            with suppress(psutil.NoSuchProcess):
                family += root.children(recursive=True)
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    memory += process.memory_info().rss
                    times = process.cpu_times()
                    self._cpu[process.pid] = times.user + times.system
            self.bytes = max(self.bytes, memory)
