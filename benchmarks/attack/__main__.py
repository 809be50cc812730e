"""`make attack`: measures what every kind of flood by a stranger costs the server and honest traffic.

Each flood has its own server, on embedded parts and loopback. Its messages wait in the node, and the server works them
off. The CPU, rows, bytes and memory that they took are compared with those of honest messages of their kind and size.
Then honest traffic comes at a quarter of what the server can do, alone and with twice as much of the flood beside it.

The settings of the environment apply, as for `wakupush dev`: a limit may be too low for so many honest users.

Exits with 1 if an aim is missed, with 2 if none is missed but the machine was too noisy to judge all.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks.attack import honest
from benchmarks.attack.aims import OTHERS, exit_code
from benchmarks.attack.floods import FLOODS
from benchmarks.attack.measure import SETTINGS, Cost, capacity, cost, felt, warm_up
from benchmarks.attack.report import Result, as_json, honest_table, line, not_kept, table, verdicts
from benchmarks.attack.traffic import Flood
from benchmarks.attack.world import World
from benchmarks.running import end_on_signals, running
from wakupush.devnet.processes import WaitTimeoutError
from wakupush.model.queues import POOLS

#: Worker processes of each pool.
CONCURRENCY = 2
#: Honest messages for each one of a flood, by which the server's capacity is measured: of all kinds, at once.
BURST = 2
#: Columns of the table, so that it is not cut without a terminal.
WIDTH = 160
#: The share of the capacity that is honest traffic beside a flood.
SHARE = 0.25


@contextmanager
def world(population: int) -> Iterator[World]:
    environment = {name: value for name, value in os.environ.items() if name.startswith("WAKUPUSH_")}
    environment.pop("WAKUPUSH_IDENTITY_KEY", None)  # the key that counts is in a file of the stack
    with running(CONCURRENCY, pools=POOLS, **(environment | SETTINGS)) as bench:
        opened = World(bench, population)
        opened.queried  # noqa: B018 - registers honest users
        yield opened


def references(kinds: Sequence[str], messages: int, runs: int) -> tuple[dict[str, list[list[Cost]]], float]:
    """Return what honest messages of these kinds and of each size cost, by run, and how many a second are handled."""
    with world(messages) as opened:
        for traffic in honest.KINDS.values():
            warm_up(opened, traffic[0])
        costs = {
            kind: [[cost(opened, each, messages) for each in honest.KINDS[kind]] for _ in range(runs)] for kind in kinds
        }
        return costs, capacity(opened, BURST * messages)


def attack(flood: Flood, options: argparse.Namespace, rate: float) -> Result:
    """Measure a flood against its own server."""
    result = Result(flood)
    try:
        with world(options.messages) as opened:
            warm_up(opened, flood)
            result.costs.extend(cost(opened, flood, options.messages) for _ in range(options.runs))
            for _ in range(options.runs if options.seconds else 0):
                alone = felt(opened, rate, options.seconds)
                result.felt.append((alone, felt(opened, rate, options.seconds, flood)))
    except WaitTimeoutError as error:
        return Result(flood, stopped=str(error))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make attack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kind", default="", help="only floods whose name contains this")
    parser.add_argument("--messages", type=int, default=1000, help="of a flood and users; its own bounds may be lower")
    parser.add_argument("--seconds", type=float, default=10, help="of honest traffic; with 0 there is none")
    parser.add_argument("--runs", type=int, default=3, help="of everything; what they do not agree on is too noisy")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    floods = [flood for flood in FLOODS if options.kind in flood.name]
    if not floods:
        parser.error(f"no flood has this name; there are: {'; '.join(flood.name for flood in FLOODS)}")
    console = Console(highlight=False, soft_wrap=True)
    results: list[Result] = []
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("honest messages", total=1 + len(floods))
        kinds = [kind for kind in honest.KINDS if any(flood.honest == kind for flood in floods)]
        costs, capacity = references(kinds, options.messages, options.runs)
        lines = {kind: list(map(line, runs)) for kind, runs in costs.items()}
        console.print(
            f"the server handles {capacity:.0f} honest messages a second; {SHARE * capacity:.0f} come beside a flood"
        )
        for flood in floods:
            progress.update(task, advance=1, description=flood.name)
            results.append(attack(flood, options, SHARE * capacity))
            console.print(flood.name, *not_kept(results[-1:], lines), sep="\n  ", markup=False)
            if options.json:
                # Half an hour of measurements must not be lost.
                options.json.write_text(json.dumps(as_json(results, costs, lines), indent=1) + "\n")
    console.width = max(console.width, WIDTH)
    console.print(honest_table(costs))
    console.print(table(results, lines))
    others = max(result.others for result in results)
    console.print(f"others used up to {100 * others:.0f} % of the cores" + (", which is too much" * (others > OTHERS)))
    for text in not_kept(results, lines):
        console.print(text, markup=False)
    return exit_code(verdicts(results, lines))


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
