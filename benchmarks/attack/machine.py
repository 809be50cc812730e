"""Watching the load by others on the machine, and the memory of processes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.running import cpu_of, family
from wakupush.devnet.parts.processes import Process

#: Of the machine's times; those of guests are among those of users.
BUSY = ("user", "nice", "system", "irq", "softirq", "steal")


class Busy:
    """Watches how much of the cores is used."""

    def __init__(self) -> None:
        self._at, self._used = time.monotonic(), _used()

    def share(self) -> float:
        """Return the share of all cores that was used since the beginning."""
        return (_used() - self._used) / ((time.monotonic() - self._at) * (psutil.cpu_count() or 1))


class Others:
    """Watches the CPU time that neither this process nor what it started uses."""

    def __init__(self) -> None:
        self._at, self._used = time.monotonic(), _used_by_others()

    def share(self) -> float:
        """Return the share of all cores that others have used since the beginning."""
        seconds = (time.monotonic() - self._at) * (psutil.cpu_count() or 1)
        return max(0.0, (_used_by_others() - self._used) / seconds)


def _used() -> float:
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in BUSY)


def _used_by_others() -> float:
    this = psutil.Process()
    return _used() - sum(map(cpu_of, [this, *this.children(recursive=True)]))


class Peaks:
    """Watches the resident memory of processes and their children, by the kernel's own mark of the highest (Linux)."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self._before = {}
        for process in processes:
            for member in family(process):
                Path(f"/proc/{member.pid}/clear_refs").write_text("5")
                self._before[member.pid] = member.memory_info().rss

    def growth(self) -> int:
        """Return the bytes that the one which grew most has needed beyond what it had at the beginning."""
        most = 0
        for pid, before in self._before.items():
            with suppress(FileNotFoundError, KeyError):  # it has ended, or is about to
                most = max(most, _highest(pid) - before)
        return most


def _highest(pid: int) -> int:
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024
