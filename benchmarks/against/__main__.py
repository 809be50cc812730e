"""`make bench-against REV=…`: compares what messages cost this server and another revision of it.

Both get the same load on the same node and gorush, in turn, each time with servers started anew and with the defaults
of their revision. What counts is the CPU time of every process except node, gorush and generator, less what an idle
server uses, until answers, leases and follow-ups are done and a CHECKPOINT has ended.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.against.revisions import serving
from benchmarks.loads import LOADS, Load, Measured, measure, warm_up
from benchmarks.running import end_on_signals
from deploy.release.past import ROOT, checkout, last_release

MILLISECONDS = 1000
#: Columns of the tables, so that they are not cut without a terminal.
WIDTH = 180

#: The confidence of a bound.
CONFIDENCE = 0.9
#: Spread of the base, from its least to its most, above which the machine was too noisy.
NOISY = 0.15

#: The pairs of figures of a load: the base's and ours.
Pairs = list[tuple[Measured, Measured]]


@dataclass(frozen=True)
class Ratios:
    """Ratios of ours to the base's, one of each pair."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def upper(self) -> float:
        """A bound below which their median is with `CONFIDENCE`, for any distribution; infinite for too few pairs."""
        return self._bound(sorted(self.values), math.inf)

    @property
    def lower(self) -> float:
        """A bound above which their median is with `CONFIDENCE`; 0 for too few pairs."""
        return self._bound(sorted(self.values, reverse=True), 0.0)

    def _bound(self, ordered: Sequence[float], unknown: float) -> float:
        """Return the first value that the median does not lie beyond, by enough certainty (order statistics)."""
        ways = 0
        for position, value in enumerate(ordered):
            # The ways in which coins show `position` heads: a value is as likely on this side of the median as not.
            ways += math.comb(len(ordered), position)
            if ways >= CONFIDENCE * 2 ** len(ordered):
                return value
        return unknown


def spread(base: Sequence[float]) -> float:
    """Return how far the base's figures lie apart, as a share of their median."""
    return (max(base) - min(base)) / median(base)


def measured(root: Path, loads: Sequence[Load], concurrency: int) -> dict[str, Measured]:
    """Start a server, and measure all loads."""
    with serving(root, concurrency) as bench:
        warm_up(bench)
        return {load.name: measure(bench, load) for load in loads}


def ratios_of_cpu(pairs: Pairs) -> Ratios:
    return Ratios([ours.total / base.total for base, ours in pairs])


def ratios_of_rates(pairs: Pairs) -> Ratios | None:
    rates = [(base.per_second, ours.per_second) for base, ours in pairs]
    return Ratios([ours / base for base, ours in rates if base and ours]) if all(map(all, rates)) else None


def is_noisy(pairs: Pairs) -> bool:
    return spread([base.total for base, _ in pairs]) > NOISY


def summary(loads: Sequence[Load], results: dict[str, Pairs], base: str) -> Table:
    columns = ("", f"{base}, µs", "now, µs", "ratio", "least-most", "upper", "a second", "ratio", "lower", "p99, ms")
    table = Table(*columns, box=None)
    for load in loads:
        pairs = results[load.name]
        cpu, rates = ratios_of_cpu(pairs), ratios_of_rates(pairs)
        late = [each for each in zip(*((base.p99, ours.p99) for base, ours in pairs), strict=True) if None not in each]
        table.add_row(
            load.name + (" (noisy)" if is_noisy(pairs) else ""),
            *(f"{median(each.total for each in side):.0f}" for side in zip(*pairs, strict=True)),
            f"{cpu.median:.3f}",
            f"{min(cpu.values):.2f}-{max(cpu.values):.2f}",
            f"{cpu.upper:.3f}",
            f"{median(ours.per_second for _, ours in pairs):.0f}" if rates else "",
            f"{rates.median:.2f}" if rates else "",
            f"{rates.lower:.2f}" if rates else "",
            ", ".join(f"{MILLISECONDS * median(side):.0f}" for side in late),
        )
    return table


def by_process(loads: Sequence[Load], results: dict[str, Pairs], base: str) -> Table:
    names = list(next(iter(results.values()))[0][1].cpu)
    table = Table(f"µs of {base} → now", *names, box=None)
    for load in loads:
        cells = []
        for name in names:
            old, new = (
                median(each.cpu.get(name, 0.0) for each in side) for side in zip(*results[load.name], strict=True)
            )
            cells.append(f"{old:.0f} → {new:.0f}" if max(old, new) >= 1 else "")
        table.add_row(load.name, *cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make bench-against", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rev", default=last_release(), help="the other revision")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--load", default="", help="only loads whose name contains this")
    parser.add_argument("--concurrency", type=int, default=1, help="worker processes of each pool")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    loads = [load for load in LOADS if options.load in load.name]
    if not loads:
        parser.error(f"no load has this name; there are: {'; '.join(load.name for load in LOADS)}")
    try:
        other = checkout(options.rev)
    except subprocess.CalledProcessError as error:
        parser.error(f"{options.rev} cannot be set up: {error}")
    console = Console(highlight=False, soft_wrap=True)
    results: dict[str, Pairs] = {load.name: [] for load in loads}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("pairs", total=options.pairs)
        for number in range(options.pairs):
            # In turn, so that changes on the machine favour neither.
            roots = [other, ROOT] if number % 2 == 0 else [ROOT, other]
            figures = {root: measured(root, loads, options.concurrency) for root in roots}
            for load in loads:
                results[load.name].append((figures[other][load.name], figures[ROOT][load.name]))
            ratios = ", ".join(f"{load.name} {ratios_of_cpu(results[load.name][-1:]).median:.2f}" for load in loads)
            console.print(f"pair {number + 1}: {ratios}")
            progress.update(task, advance=1)
            if options.json:
                options.json.write_text(as_json(results))
    console.width = max(console.width, WIDTH)
    console.print(summary(loads, results, options.rev))
    console.print(by_process(loads, results, options.rev))


def as_json(results: dict[str, Pairs]) -> str:
    pairs = {
        name: [[asdict(base), asdict(ours)] for base, ours in pairs_of_load] for name, pairs_of_load in results.items()
    }
    return json.dumps(pairs, indent=1) + "\n"


if __name__ == "__main__":
    end_on_signals()
    main()
