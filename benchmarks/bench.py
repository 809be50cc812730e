"""`make bench`: how much the server does on this machine, and where the time goes.

Messages wait in the development node while ingest is stopped; then ingest starts, and what counts is the time from the
first message that a worker takes to the last effect (answer at the node, push at gorush). Node, ingest, Redis, workers,
Postgres and gorush share the machine's cores. Nothing is asserted here: figures go into docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2
import psutil
from rich.console import Console
from rich.table import Table

from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import SHARDS, Stack
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.waku_message import WakuMessage, message_hash
from wakupush.waku.node import WakuNode
from wakupush.waku.publisher import Publisher

SHARD = SHARDS[0]


@dataclass
class Run:
    """One measurement."""

    count: int
    seconds: float
    #: CPU seconds by process.
    cpu: dict[str, float] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        return self.count / self.seconds


class Bench:
    """A running server and what it is loaded with."""

    def __init__(self, stack: Stack, pool: ProcessPoolExecutor) -> None:
        self.stack = stack
        self.pool = pool
        self.server = stack.key.public_key.compressed
        self.users: list[tuple[bytes, bytes]] = []

    def make(self, work: Callable, arguments: list) -> list:
        """Do work for each argument in all processes of the pool."""
        return list(self.pool.map(work, arguments, chunksize=50))

    def load(self, sent: list[WakuMessage], *, answers: int, pushes: int = 0) -> Run:
        """Let the server work off messages, and measure it."""
        stack = self.stack
        stack.ingest.stop()
        stack.reconcile.stop()  # it would enqueue what waits
        node_log, gorush_log = _position(stack.node_url), _position(stack.gorush_url)
        with WakuNode(stack.node_url) as node:
            for message in sent:
                node.publish(SHARD, message)
        published = _position(stack.node_url)
        with stack.connect() as connection:
            connection.execute("CHECKPOINT")
            since = time.time()
            before = _cpu(stack)
            stack.ingest.start()
            wait_until(
                lambda: (
                    _position(stack.node_url) - published >= answers
                    and _position(stack.gorush_url) - gorush_log >= pushes
                    and _handled(connection, since) >= len(sent)
                ),
                timeout=300,
                what=f"{answers} answers and {pushes} pushes",
                interval=0.2,
            )
            [(first, last_event)] = connection.execute(
                "SELECT extract(epoch FROM min(time))::float8, extract(epoch FROM max(time))::float8"
                " FROM delivery_events WHERE time >= to_timestamp(%s)",
                [since],
            ).fetchall()
        after = _cpu(stack)
        last_answer = _last(stack.node_url, node_log, "arrivedAt") if answers else 0
        last_push = _last(stack.gorush_url, gorush_log, "at") if pushes else 0
        cpu = {name: after[name] - before.get(name, 0) for name in after}
        return Run(len(sent), max(last_event, last_answer, last_push) - first, cpu)


def _position(url: str) -> int:
    return int(httpx2.get(f"{url}/dev/log", params={"after": 2**53}, trust_env=False).json()["next"])


def _entries(url: str, after: int) -> list[dict]:
    return httpx2.get(f"{url}/dev/log", params={"after": after}, timeout=60, trust_env=False).json()["entries"]


def _last(url: str, after: int, name: str) -> float:
    return max(each[name] for each in _entries(url, after))


def _handled(connection, since: float) -> int:
    return connection.execute(
        "SELECT count(*) FROM delivery_events WHERE kind = 'received' AND time >= to_timestamp(%s)", [since]
    ).fetchone()[0]


def _cpu(stack: Stack) -> dict[str, float]:
    """Return the CPU seconds of each part, with its children."""
    used = {}
    for process in stack.processes:
        if process.pid is None:
            continue
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        used[process.name] = sum(map(_cpu_of, family))
    return used


def _cpu_of(member: psutil.Process) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    try:
        times = member.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system + times.children_user + times.children_system


# Making messages, in other processes


def make_registration(server: bytes, _: int) -> tuple[WakuMessage, bytes, bytes]:
    client = PrivateKey.generate()
    content = messages.registration(client, PublicKey(server))
    return messages.register(client, PublicKey(server), content), client.secret, content.SerializeToString()


def make_query(user: tuple[bytes, bytes]) -> WakuMessage:
    return messages.query(PrivateKey.generate(), PrivateKey(user[0]).public_key.key_hash)


def make_request(server: bytes, user: tuple[bytes, bytes]) -> WakuMessage:
    content = messages.PushNotificationRegistration.FromString(user[1])
    item = messages.notification(PrivateKey(user[0]).public_key.key_hash, content)
    return messages.request(PrivateKey.generate(), PublicKey(server), [item])


def make_foreign(server: bytes, _: int) -> WakuMessage:
    ours = messages.to_server(PrivateKey.generate(), PublicKey(server), 20, os.urandom(200))
    theirs = messages.to_server(PrivateKey.generate(), PrivateKey.generate().public_key, 20, os.urandom(200))
    return WakuMessage(payload=theirs.payload, content_topic=ours.content_topic, timestamp=time.time_ns())


# The rows


def first_registrations(bench: Bench, count: int) -> Run:
    made = bench.make(partial(make_registration, bench.server), list(range(count)))
    run = bench.load([message for message, _, _ in made], answers=count)
    bench.users += [(secret, content) for _, secret, content in made]
    return run


def queries(bench: Bench, count: int) -> Run:
    users = bench.users[: min(200, len(bench.users))]
    sent = bench.make(make_query, [users[number % len(users)] for number in range(count)])
    return bench.load(sent, answers=count)


def requests(bench: Bench, count: int) -> Run:
    users = [bench.users[number % len(bench.users)] for number in range(count)]
    return bench.load(bench.make(partial(make_request, bench.server), users), answers=count, pushes=count)


def requests_50_ms(bench: Bench, count: int) -> Run:
    url = f"{bench.stack.gorush_url}/dev/faults"
    httpx2.post(url, json={"kind": "delay", "seconds": 0.05, "path": "/api/push"}).raise_for_status()
    try:
        return requests(bench, count)
    finally:
        httpx2.delete(url).raise_for_status()


def foreign(bench: Bench, count: int) -> Run:
    return bench.load(bench.make(partial(make_foreign, bench.server), list(range(count))), answers=0)


# Latency


def publish_at(url: str, sent: list[WakuMessage], rate: float) -> None:
    """Publish messages at an even rate, from a process of its own."""
    publisher = Publisher(url, timeout=10, connections=8)
    begun = time.monotonic()
    for start in range(0, len(sent), 10):
        time.sleep(max(0.0, begun + start / rate - time.monotonic()))
        publisher.publish([(SHARD, message) for message in sent[start : start + 10]])
    publisher.close()


def latencies(bench: Bench, rate: float, seconds: float, garbage: float) -> list[float]:
    """Return the seconds from node to gorush of each push, at a rate of requests and of garbage a second."""
    stack = bench.stack
    count = int(rate * seconds)
    users = [bench.users[number % len(bench.users)] for number in range(count)]
    sent = bench.make(partial(make_request, bench.server), users)
    noise = bench.make(partial(make_foreign, bench.server), list(range(int(garbage * seconds))))
    node_log, gorush_log = _position(stack.node_url), _position(stack.gorush_url)
    futures = [bench.pool.submit(publish_at, stack.node_url, sent, rate)]
    if noise:
        futures.append(bench.pool.submit(publish_at, stack.node_url, noise, garbage))
    for future in futures:
        future.result()
    wait_until(
        lambda: _position(stack.gorush_url) - gorush_log >= count, timeout=120, what=f"{count} pushes", interval=0.2
    )
    arrived = {each["hash"]: each["arrivedAt"] for each in _entries(stack.node_url, node_log)}
    pushed = {each["notification"]["notif_id"]: each["at"] for each in _entries(stack.gorush_url, gorush_log)}
    with stack.connect() as connection:
        query = "SELECT trace_id, encode(delivery_key, 'hex') FROM deliveries"
        keys = dict(connection.execute(query).fetchall())
    hashes = [message_hash(SHARD, message).hex() for message in sent]
    return sorted(pushed[keys[each[:16]]] - arrived[f"0x{each}"] for each in hashes)


def show_latencies(console: Console, bench: Bench, rate: float) -> None:
    for name, garbage in (("alone", 0), ("with as much garbage", rate), ("with five times as much garbage", 5 * rate)):
        found = latencies(bench, rate, 15, garbage)
        middle, late = found[len(found) // 2], found[int(len(found) * 0.99)]
        console.print(f"node to gorush at {rate:.0f}/s {name}: p50 {1000 * middle:.0f} ms, p99 {1000 * late:.0f} ms")


@dataclass(frozen=True)
class Row:
    """One row of the budgets."""

    name: str
    measure: Callable[[Bench, int], Run]
    count: int
    #: What the reference server does, one process, per second, and what we aim at.
    reference: int
    aim: int


ROWS = (
    Row("first registrations", first_registrations, 2000, 58, 1000),
    Row("queries", queries, 2000, 558, 1500),
    Row("push requests, gorush at once", requests, 2000, 418, 1200),
    Row("push requests, gorush in 50 ms", requests_50_ms, 2000, 20, 1000),
    Row("foreign messages", foreign, 5000, 8700, 5000),
)


@contextmanager
def running(concurrency: int):
    directory = Path(tempfile.mkdtemp(prefix="wakupush-bench-"))
    directory.chmod(0o755)
    try:
        with Stack(directory, concurrency=concurrency) as stack, ProcessPoolExecutor(2) as pool:
            yield Bench(stack, pool)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--concurrency", type=int, nargs="*", default=[1, 2], help="worker processes of each pool")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--latency", type=float, default=300, help="requests a second for the latencies; 0 skips them")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    options = parser.parse_args()
    console = Console(highlight=False)
    results = {}
    for concurrency in options.concurrency:
        with running(concurrency) as bench:
            first_registrations(bench, 500)  # warms everything up, and makes users
            for row in ROWS:
                if options.rows in row.name:
                    runs = [row.measure(bench, row.count) for _ in range(options.runs)]
                    results[f"{row.name}, {concurrency}"] = runs
                    console.print(f"{concurrency} processes a pool: {row.name}: {_spread(runs)}")
            if options.latency:
                show_latencies(console, bench, options.latency)
    table = Table("a second", "reference", "aim", *(f"{each} a pool" for each in options.concurrency), box=None)
    for row in ROWS:
        cells = [results.get(f"{row.name}, {each}") for each in options.concurrency]
        if any(cells):
            table.add_row(
                row.name, str(row.reference), str(row.aim), *(_spread(runs) if runs else "" for runs in cells)
            )
    console.print(table)
    for name, runs in results.items():
        total = {part: sum(run.cpu.get(part, 0) for run in runs) for part in runs[0].cpu}
        count = sum(run.count for run in runs)
        shares = ", ".join(f"{part} {1e6 * used / count:.0f}" for part, used in total.items() if used > 0.01)
        console.print(f"CPU µs a message: {name}: {shares}")
    if options.json:
        figures = {name: [[run.count, run.seconds, run.cpu] for run in runs] for name, runs in results.items()}
        options.json.write_text(json.dumps(figures, indent=1))


def _spread(runs: list[Run]) -> str:
    rates = sorted(run.per_second for run in runs)
    return f"{statistics.median(rates):.0f} ({rates[0]:.0f}-{rates[-1]:.0f})"


if __name__ == "__main__":
    main()
