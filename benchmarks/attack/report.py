"""The results of each flood, as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from rich.table import Table

from benchmarks.attack import aims
from benchmarks.attack.aims import Line, Verdict, verdict
from benchmarks.attack.measure import Cost, Felt
from benchmarks.attack.traffic import Flood


@dataclass(frozen=True)
class Aim:
    """A figure of each run, and what it should be at most."""

    name: str
    figures: Sequence[float]
    most: float
    verdict: Verdict


@dataclass(frozen=True)
class Result:
    """What was measured of a flood, by run."""

    flood: Flood
    costs: list[Cost] = field(default_factory=list)
    #: Honest traffic alone, and beside the flood.
    felt: list[tuple[Felt, Felt]] = field(default_factory=list)
    #: Why it was not measured to its end; empty if it was.
    stopped: str = ""

    @property
    def others(self) -> float:
        """The largest share of the cores that others used."""
        return max((each.others for each in [*self.costs, *(each for pair in self.felt for each in pair)]), default=0.0)

    def aims(self, lines: Sequence[Line]) -> list[Aim]:
        """Return what it is judged by.

        Args:
            lines: of honest messages of its kind, by run.
        """
        if self.stopped:
            return [Aim(self.stopped, (), 0.0, Verdict.MISS)]
        times = [each.cpu_seconds / line.at(each.size) for each, line in zip(self.costs, lines, strict=True)]
        all_aims = [Aim("times the CPU of an honest message", times, aims.CPU, verdict(times, aims.CPU))]
        memory = [max(each.memory_shares.values()) for each in self.costs]
        all_aims.append(Aim("share of a pod's memory", memory, aims.MEMORY, verdict(memory, aims.MEMORY)))
        if not self.flood.purpose:
            ratios = [each.stored_for_each_byte for each in self.costs]
            all_aims.append(Aim("stored bytes a byte", ratios, aims.STORED, verdict(ratios, aims.STORED)))
        if self.felt:
            grown = [ratio(beside.p99, alone.p99) for alone, beside in self.felt]
            slowest = [beside.slowest_first for _, beside in self.felt]
            all_aims.append(self._latency("times the p99 of requests and queries", grown, aims.P99))
            all_aims.append(self._latency("seconds of the slowest registration", slowest, aims.FIRST))
        return all_aims

    def _latency(self, name: str, figures: Sequence[float], most: float) -> Aim:
        """Return an aim for latency, which a machine that others used too may miss."""
        reached = verdict(figures, most)
        is_disturbed = self.others > aims.OTHERS and reached is Verdict.MISS
        return Aim(name, figures, most, Verdict.NOISY if is_disturbed else reached)


def ratio(beside: float, alone: float) -> float:
    """Return how many times as long it took; messages that do not come at all take infinitely long."""
    return math.inf if math.isinf(beside) else beside / alone


def line(costs: Sequence[Cost]) -> Line:
    """Return the CPU of honest messages of a kind by their size, of what was measured in one run."""
    return Line([(each.size, each.cpu_seconds) for each in costs])


COST_COLUMNS = ("bytes", "CPU µs", "rows", "stored B/B", "Redis B/B", "worker MB", "pod %")


def honest_table(costs: dict[str, list[list[Cost]]]) -> Table:
    """Return a row for each kind and size of honest message: medians of the runs."""
    cost_table = Table("honest", box=None)
    for column in COST_COLUMNS:
        cost_table.add_column(column, justify="right")
    for kind, runs in costs.items():
        for of_size in zip(*runs, strict=True):
            cost_table.add_row(kind, *_cost_cells(of_size))
    return cost_table


def table(results: Sequence[Result], lines: dict[str, list[Line]]) -> Table:
    """Return a row for each flood: medians of its runs, and whether it keeps the aims."""
    flood_table = Table("power", "flood", box=None)
    for column in (*COST_COLUMNS, "of honest", "p50 ms", "p99 ms", "grows", "first s", "busy %", ""):
        flood_table.add_column(column, justify="right")
    power = None
    for result in results:
        flood, costs, judged = result.flood, result.costs, result.aims(lines[result.flood.honest])
        flood_table.add_row(
            flood.power.value if flood.power is not power else "",
            flood.name,
            *([*_cost_cells(costs), f"{median(judged[0].figures):.2f}"] if costs else [""] * 8),
            *(_felt_cells(result.felt) if result.felt else [""] * 5),
            _worst([each.verdict for each in judged]).value,
        )
        power = flood.power
    return flood_table


def _cost_cells(costs: Sequence[Cost]) -> list[str]:
    return [
        f"{median(each.size for each in costs):,.0f}",
        f"{1e6 * median(each.cpu_seconds for each in costs):,.0f}",
        f"{median(each.rows for each in costs):,.1f}",
        f"{median(each.stored_for_each_byte for each in costs):.2f}",
        f"{median(each.redis_for_each_byte for each in costs):.2f}",
        f"{median(each.memory for each in costs) / 1e6:.0f}",
        f"{100 * median(max(each.memory_shares.values()) for each in costs):.0f}",
    ]


def _felt_cells(felt: Sequence[tuple[Felt, Felt]]) -> list[str]:
    alone, beside = ([pair[which] for pair in felt] for which in (0, 1))
    p50, p99 = (
        f"{1000 * median(getattr(each, name) for each in alone):.0f}"
        f" → {1000 * median(getattr(each, name) for each in beside):.0f}"
        for name in ("p50", "p99")
    )
    busy = " → ".join(f"{100 * median(each.busy for each in side):.0f}" for side in (alone, beside))
    grows = f"{median(ratio(after.p99, before.p99) for before, after in felt):.2f}"
    return [p50, p99, grows, f"{median(each.slowest_first for each in beside):.1f}", busy]


def _worst(verdicts: Sequence[Verdict]) -> Verdict:
    return next(each for each in (Verdict.MISS, Verdict.NOISY, Verdict.PASS) if each in verdicts)


def not_kept(results: Sequence[Result], lines: dict[str, list[Line]]) -> list[str]:
    """Return a line for each aim that is missed, or that the runs do not agree on."""
    return [
        f"{aim.verdict.value}: {result.flood.name}: {aim.name}: {', '.join(f'{each:.2f}' for each in aim.figures)}"
        f" (at most {aim.most:g})"
        for result in results
        for aim in result.aims(lines[result.flood.honest])
        if aim.verdict is not Verdict.PASS
    ]


def verdicts(results: Sequence[Result], lines: dict[str, list[Line]]) -> list[Verdict]:
    """Return the verdict on every aim of every flood."""
    return [aim.verdict for result in results for aim in result.aims(lines[result.flood.honest])]


def as_json(
    results: Sequence[Result], honest: dict[str, list[list[Cost]]], lines: dict[str, list[Line]]
) -> dict[str, object]:
    """Return the figures of honest messages and of every flood, by run; infinite ones are None."""
    return {
        "honest": {kind: [[asdict(each) for each in run] for run in runs] for kind, runs in honest.items()},
        "floods": [
            {
                "flood": result.flood.name,
                "power": result.flood.power.value,
                "compared with": result.flood.honest,
                "stopped": result.stopped,
                "costs": [asdict(each) for each in result.costs],
                "felt": [[_finite(asdict(each)) for each in pair] for pair in result.felt],
                "aims": [
                    {"aim": aim.name, "most": aim.most, "verdict": aim.verdict.value}
                    | {"figures": [None if math.isinf(each) else each for each in aim.figures]}
                    for aim in result.aims(lines[result.flood.honest])
                ],
            }
            for result in results
        ],
    }


def _finite(figures: dict[str, object]) -> dict[str, object]:
    return {name: None if value == math.inf else value for name, value in figures.items()}
