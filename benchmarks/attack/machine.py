"""Watching the load by others on the machine, and the memory of processes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil
import yaml

from benchmarks.running import cpu_of, family
from wakupush.devnet.parts.processes import Process

ROOT = Path(__file__).parents[2]
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
    """Watches the resident memory of processes and their children, by the kernel's own mark of the highest (Linux).

    Args:
        processes: by the names of the chart's components.
    """

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self._before: dict[str, dict[int, int]] = {}
        for name, process in processes.items():
            self._before[name] = {member.pid: member.memory_info().rss for member in family(process)}
            for pid in self._before[name]:
                Path(f"/proc/{pid}/clear_refs").write_text("5")

    @property
    def names(self) -> Iterable[str]:
        """The names of the processes."""
        return self._before

    def growth(self, names: Iterable[str]) -> int:
        """Return the bytes that the one which grew most of these has needed beyond what it had at the beginning."""
        members = [member for name in names for member in self._before[name].items()]
        return max(max(0, _highest(pid) - before) for pid, before in members)

    def shares(self, limits: Mapping[str, int]) -> dict[str, float]:
        """Return which shares of their limits (bytes) the processes needed at most, together with their children.

        What they share is counted for each of them, so it is a little more than the kernel would count of a pod.
        """
        return {name: sum(map(_highest, self._before[name])) / limit for name, limit in limits.items()}


def chart_limits() -> dict[str, int]:
    """Return the bytes of memory that the chart lets a pod of each component have, unless its values say otherwise."""
    values = yaml.safe_load((ROOT / "deploy/helm/wakupush/values.yaml").read_text())
    return {
        name: _bytes(component["resources"]["limits"]["memory"]) for name, component in values["components"].items()
    }


def _bytes(quantity: str) -> int:
    return int(quantity[:-2]) * {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}[quantity[-2:]]


def _highest(pid: int) -> int:
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024
    except (FileNotFoundError, KeyError):  # it has ended, or is about to
        return 0
