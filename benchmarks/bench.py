"""`make bench`: measures what messages cost on this machine, how long they take, and what grows.

Messages wait in the development node while ingest is suspended, or arrive at an even rate. All processes share the
machine's cores. Nothing is asserted here: figures go into docs/internals/performance.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.floor import floors
from benchmarks.loads import AT_ONCE, LOADS, Load, Measured, measure, warm_up
from benchmarks.running import end_on_signals, running
from benchmarks.scale import show_growth, show_keys, show_outage, show_pending

#: Loads whose cost must not depend on the number of registered keys.
OF_KEYS = ("first registrations", "queries of one key", AT_ONCE)
SECTIONS = ("loads", "keys", "pending", "outage", "growth")
#: Columns of the table, so that it is not cut without a terminal.
WIDTH = 160


def results_of(console: Console, loads: Sequence[Load], concurrency: int, runs: int) -> dict[str, list[Measured]]:
    """Measure loads on one server, each so many times."""
    results = {}
    with running(concurrency) as bench:
        warm_up(bench)
        for load in loads:
            results[load.name] = [measure(bench, load) for _ in range(runs)]
            console.print(f"{concurrency} processes a pool: {load.name}: {_micros(results[load.name]):.0f} µs")
    return results


def _micros(runs: Sequence[Measured]) -> float:
    return median(run.total for run in runs)


def table(
    loads: Sequence[Load], results: dict[str, list[Measured]], concurrency: int, least: Mapping[str, float]
) -> Table:
    """Return the medians of the runs: CPU time of a message, as a multiple of the least possible and by process.

    Args:
        loads: the rows.
        results: the runs of each load.
        concurrency: processes of a pool.
        least: the least possible seconds of a message of each kind.
    """
    figures_table = Table(f"{concurrency} a pool", "µs", "floors", "a second", "p99, ms", "by process", box=None)
    for load in loads:
        runs = results[load.name]
        [floor] = [1e6 * seconds for kind, seconds in least.items() if load.name.startswith(kind)]
        by_process = {name: median(run.cpu[name] for run in runs) for name in runs[0].cpu}
        figures_table.add_row(
            load.name,
            f"{_micros(runs):.0f}",
            f"{_micros(runs) / floor:.1f}",
            f"{median(run.per_second for run in runs):.0f}" if load.rate is None else "",
            f"{1000 * median(run.p99 for run in runs):.0f}" if load.rate else "",
            ", ".join(f"{name} {micros:.0f}" for name, micros in by_process.items() if micros >= 1),
        )
    return figures_table


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--sections", nargs="*", default=SECTIONS, choices=SECTIONS)
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 2], help="worker processes of each pool")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--load", default="", help="only loads whose name contains this")
    parser.add_argument("--keys", type=int, default=1_000_000, help="registered keys, beside a server with 1,000")
    parser.add_argument("--messages", type=int, default=100_000, help="over which the memory of a worker is watched")
    parser.add_argument("--pending", type=int, default=1_000_000, help="deliveries that are due at once")
    parser.add_argument("--pending-milliseconds", type=int, default=0, help="that a push takes then")
    parser.add_argument(
        "--pending-throttled", type=int, default=0, help="devices of a thousand that refuse pushes then"
    )
    parser.add_argument("--pending-rate", type=int, default=50, help="first attempts a second then")
    parser.add_argument("--outage-seconds", type=int, default=600, help="for which gorush is away")
    parser.add_argument("--outage-rate", type=int, default=30, help="push requests a second, all the time")
    parser.add_argument("--json", type=Path, help="write the figures of the loads there too")
    options = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, WIDTH)
    if "loads" in options.sections:
        loads = [load for load in LOADS if options.load in load.name]
        figures = {each: results_of(console, loads, each, options.runs) for each in options.concurrency}
        least, _ = floors()
        for concurrency, results in figures.items():
            console.print(table(loads, results, concurrency, least))
        if options.json:
            written = {
                f"{name}, {concurrency}": [asdict(run) for run in runs]
                for concurrency, results in figures.items()
                for name, runs in results.items()
            }
            options.json.write_text(json.dumps(written, indent=1))
    if "keys" in options.sections:
        show_keys(console, [load for load in LOADS if load.name in OF_KEYS], options.keys, options.runs)
    if "pending" in options.sections:
        show_pending(
            console,
            options.pending,
            options.pending_milliseconds,
            options.pending_throttled,
            options.pending_rate,
        )
    if "outage" in options.sections:
        show_outage(console, options.outage_seconds, options.outage_rate)
    if "growth" in options.sections:
        show_growth(console, options.messages)


if __name__ == "__main__":
    end_on_signals()
    main()
