"""`make bench`: measures how much the server does on this machine, and where the time goes.

Messages wait in the development node while ingest is stopped; then ingest starts, and what counts is the time from the
first message that a worker takes to the last effect (answer at the node, push at gorush). Node, ingest, Redis, workers,
Postgres and gorush share the machine's cores. Nothing is asserted here: figures go into docs/internals/performance.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import httpx2
from rich.console import Console
from rich.table import Table

from benchmarks import made
from benchmarks.floor import floors
from benchmarks.growth import show_growth
from benchmarks.latency import FLOODS, QUIET_RATE, latencies, percentiles
from benchmarks.running import OUTSIDE, Bench, Run, end_on_signals, running
from benchmarks.scale import show_keys, show_pending
from wakupush.postgres import query_topics


@contextmanager
def gorush_fault(bench: Bench, **fault):
    url = f"{bench.stack.gorush_url}/dev/faults"
    httpx2.post(url, json={"path": "/api/push", **fault}).raise_for_status()
    try:
        yield
    finally:
        httpx2.delete(url).raise_for_status()


def first_registrations(bench: Bench, count: int) -> Run:
    pairs = bench.make(partial(made.registration, bench.server), list(range(count)))
    run = bench.load([message for message, _ in pairs], answers=count)
    bench.users += [user for _, user in pairs]
    return run


def queries(bench: Bench, count: int) -> Run:
    users = bench.users[: min(200, len(bench.users))]
    with bench.stack.connect() as connection:
        query_topics.set_keys(connection, dict(bench.make(made.topic_key, users)), prefixed=False)
    sent = bench.make(made.query, [users[number % len(users)] for number in range(count)])
    return bench.load(sent, answers=count)


def requests(bench: Bench, count: int) -> Run:
    users = [bench.users[number % len(bench.users)] for number in range(count)]
    return bench.load(bench.make(partial(made.request, bench.server), users), answers=count, pushes=count)


def requests_50_ms(bench: Bench, count: int) -> Run:
    with gorush_fault(bench, kind="delay", seconds=0.05):
        return requests(bench, count)


def garbage(bench: Bench, count: int) -> Run:
    return bench.load(bench.make(partial(made.garbage, bench.server), list(range(count))), answers=0)


@dataclass(frozen=True)
class Row:
    """One row of the budgets."""

    name: str
    measure: Callable[[Bench, int], Run]
    count: int
    #: What the reference server does, one process, per second, and what we aim at.
    reference: int
    aim: int
    #: The kind of message, of `floor.KINDS`.
    kind: str


REQUESTS = Row("push requests, gorush at once", requests, 2000, 418, 1200, "push requests")
ROWS = (
    Row("first registrations", first_registrations, 2000, 58, 1000, "first registrations"),
    Row("queries", queries, 2000, 558, 1500, "queries of one key"),
    REQUESTS,
    Row("push requests, gorush in 50 ms", requests_50_ms, 2000, 20, 1000, "push requests"),
    Row("foreign messages", garbage, 5000, 8700, 5000, "foreign messages"),
)


def show_rows(console: Console, options: argparse.Namespace) -> dict[str, list[Run]]:
    """Measure the rows, and the latencies at a low rate and at half of the rate that the push requests reached."""
    results = {}
    for concurrency in options.concurrency:
        with running(concurrency) as bench:
            first_registrations(bench, 500)  # warms everything up, and makes users
            for row in ROWS:
                if options.rows in row.name:
                    runs = [row.measure(bench, row.count) for _ in range(options.runs)]
                    results[f"{row.name}, {concurrency}"] = runs
                    console.print(f"{concurrency} processes a pool: {row.name}: {spread(runs)}")
            if "latency" in options.sections:
                most = results.get(f"{REQUESTS.name}, {concurrency}") or [REQUESTS.measure(bench, REQUESTS.count)]
                half = statistics.median(run.per_second for run in most) / 2
                for rate, (name, times) in product((QUIET_RATE, half), FLOODS.items()):
                    found = percentiles(latencies(bench, rate, times * rate))
                    console.print(f"{concurrency} processes a pool: node to gorush at {rate:.0f}/s {name}: {found}")
    return results


def show_table(console: Console, results: dict[str, list[Run]], concurrency: list[int]) -> None:
    """Show how many messages a second there were, and their CPU time as a multiple of the least possible."""
    table = Table("a second", "reference", "aim", *(f"{each} a pool" for each in concurrency), box=None)
    for row in ROWS:
        cells = [results.get(f"{row.name}, {each}") for each in concurrency]
        if any(cells):
            table.add_row(row.name, str(row.reference), str(row.aim), *(spread(runs) if runs else "" for runs in cells))
    console.print(table)
    if any(row.name in name for row in ROWS for name in results):
        _show_multiples(console, results)
    for name, runs in results.items():
        total = {part: sum(run.cpu.get(part, 0) for run in runs) for part in runs[0].cpu}
        count = sum(run.count for run in runs)
        shares = ", ".join(f"{part} {1e6 * used / count:.0f}" for part, used in total.items() if used > 0.01)
        console.print(f"CPU µs a message: {name}: {shares}")


def _show_multiples(console: Console, results: dict[str, list[Run]]) -> None:
    least, _ = floors()
    for row in ROWS:
        for name, runs in results.items():
            if name.startswith(f"{row.name}, "):
                used = sum(sum(each for part, each in run.cpu.items() if part not in OUTSIDE) for run in runs)
                each = used / sum(run.count for run in runs)
                console.print(
                    f"{1e6 * each:.0f} µs a message, {each / least[row.kind]:.1f} times the floor of"
                    f" {1e6 * least[row.kind]:.0f}: {name}"
                )


def spread(runs: list[Run]) -> str:
    rates = sorted(run.per_second for run in runs)
    return f"{statistics.median(rates):.0f} ({rates[0]:.0f}-{rates[-1]:.0f})"


SECTIONS = ("rows", "latency", "keys", "pending", "growth")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.bench", description=__doc__.splitlines()[0])
    parser.add_argument("--sections", nargs="*", default=SECTIONS, choices=SECTIONS)
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 2], help="worker processes of each pool")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--keys", type=int, default=1_000_000, help="registered keys, beside a server with 1,000")
    parser.add_argument("--messages", type=int, default=100_000, help="over which the memory of a worker is watched")
    parser.add_argument("--pending", type=int, default=1_000_000, help="deliveries that are due at once")
    parser.add_argument("--pending-milliseconds", type=int, default=0, help="that a push takes then")
    parser.add_argument(
        "--pending-throttled", type=int, default=0, help="devices of a thousand that refuse pushes then"
    )
    parser.add_argument("--pending-rate", type=int, default=50, help="first attempts a second then")
    parser.add_argument("--json", type=Path, help="write the figures of the rows there too")
    options = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    if "rows" in options.sections or "latency" in options.sections:
        if "rows" not in options.sections:
            options.rows = "none"
        results = show_rows(console, options)
        show_table(console, results, options.concurrency)
        if options.json:
            figures = {name: [[run.count, run.seconds, run.cpu] for run in runs] for name, runs in results.items()}
            options.json.write_text(json.dumps(figures, indent=1))
    if "keys" in options.sections:
        rows = {row.name: row for row in ROWS if row.measure in (first_registrations, queries, requests)}
        show_keys(console, {name: row.measure for name, row in rows.items()}, options.keys, options.runs)
    if "pending" in options.sections:
        show_pending(
            console,
            options.pending,
            options.pending_milliseconds,
            options.pending_throttled,
            options.pending_rate,
        )
    if "growth" in options.sections:
        show_growth(console, first_registrations, requests, options.messages)


if __name__ == "__main__":
    end_on_signals()
    main()
