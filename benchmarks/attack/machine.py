"""Watching the load by others on the machine, and the memory of processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil
import yaml

from benchmarks.running import cpu_of, family
from wakupush.devnet.processes import Process

ROOT = Path(__file__).parents[2]
#: Of the machine's times; those of guests are among those of users.
BUSY = ("user", "nice", "system", "irq", "softirq", "steal")


class Share:
    """Watches how much of the cores is used.

    Args:
        used: returns the CPU seconds so far of those whose share it is: `used_by_all` or `used_by_others`.
    """

    def __init__(self, used: Callable[[], float]) -> None:
        self._used = used
        self._at, self._before = time.monotonic(), used()

    def share(self) -> float:
        """Return the share of all cores that they have used since the beginning."""
        seconds = (time.monotonic() - self._at) * (psutil.cpu_count() or 1)
        return max(0.0, (self._used() - self._before) / seconds)


def used_by_all() -> float:
    """Return the CPU seconds that all processes have used."""
    times = psutil.cpu_times()
    return sum(getattr(times, name, 0.0) for name in BUSY)


def used_by_others() -> float:
    """Return the CPU seconds that neither this process nor what it started has used."""
    this = psutil.Process()
    return used_by_all() - sum(map(cpu_of, [this, *this.children(recursive=True)]))


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
