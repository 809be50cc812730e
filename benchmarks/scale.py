"""How costs and memory depend on the number of registered keys, of pending deliveries and of messages."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import made
from benchmarks.age.fill import Size, fill
from benchmarks.loads import ASKED, Load, measure, requests, waits
from benchmarks.running import (
    Bench,
    family,
    gorush_fault,
    memory,
    percentile,
    relay,
    relay_at,
    rest,
    running,
    set_topic_keys,
)
from wakupush.devnet.processes import Process, wait_until
from wakupush.protocol.identity import Identity
from wakupush.redis import watched

#: Registered keys of the server that is compared with.
FEW_KEYS = 1000
#: Messages of each load.
MESSAGES = 2000
#: Pending deliveries of one statement.
CHUNK = 10_000
#: For how many seconds first attempts are measured beside the pending deliveries.
SECONDS = 30
#: Seconds until a push counts as lost.
TIMEOUT = 600
#: Messages between two looks at the memory of a worker.
STEP = 5000
MIB = 2**20

#: Due at once, each of a registered device.
ADD_PENDING = """
    INSERT INTO deliveries (
        delivery_key, key_hash, installation_hash, platform, notification_type, sealed_content, state, attempt,
        failure, next_attempt_at, seen_at, expires_at, task_id, trace_id
    )
    SELECT
        new.delivery_key, key_hash, installation_hash, token_type, 1, new.sealed_content, 'pending', 1,
        'gorush_unreachable', now(), now(), now() + interval '1 day', gen_random_uuid()::text, 'benchmark'
    FROM unnest(%(delivery_keys)b::bytea[], %(contents)b::bytea[]) WITH ORDINALITY
        AS new (delivery_key, sealed_content, number)
    JOIN (
        SELECT *, row_number() OVER () - 1 AS position FROM registrations ORDER BY key_hash LIMIT %(devices)s::bigint
    ) AS device ON position = number %% %(devices)s::bigint
"""


def register(bench: Bench, count: int, script: str = "") -> None:
    """Let users register; `script` begins their device tokens, and is what the development gorush does with them."""
    pairs = bench.make(partial(made.registration, bench.server, script=script), list(range(count)))
    relay(bench.stack.node_url, [message for message, _ in pairs])
    rest(bench)
    bench.users += [user for _, user in pairs]


def add_strangers(bench: Bench, count: int) -> None:
    """Put users for whom nobody asks into an empty database; the server then watches their topics."""
    fill(bench.stack.postgres_dsn, Size(users=count), ("registrations", "query_topics"))
    bench.redis.delete(watched.MARKER)
    wait_until(lambda: watched.is_complete(bench.redis), timeout=300, what="the topics are watched", interval=0.5)


def show_keys(console: Console, loads: Sequence[Load], keys: int, runs: int) -> None:
    """Compare the cost of a message between a server with few keys and one with many, alternately in one sitting."""
    with ExitStack() as stacks:
        benches = {count: stacks.enter_context(running(1)) for count in (FEW_KEYS, keys)}
        add_strangers(benches[keys], keys - FEW_KEYS)
        samples = {}
        for count, bench in benches.items():
            register(bench, FEW_KEYS)
            set_topic_keys(bench, bench.users[:ASKED])
            samples[count] = bench.users
        table = Table("", *(f"{count:,} keys" for count in benches), "ratio of the cost", box=None)
        for load in loads:
            costs: dict[int, list[float]] = {count: [] for count in benches}
            for _ in range(runs + 1):
                for count, bench in benches.items():
                    bench.users = list(samples[count])
                    costs[count].append(measure(bench, replace(load, count=MESSAGES)).total)
            few, many = (statistics.median(each[1:]) for each in costs.values())  # the first run warms up
            table.add_row(f"CPU µs of a message: {load.name}", f"{few:.0f}", f"{many:.0f}", f"{many / few:.2f}")
        few, many = (memory(bench.stack.ingest) / MIB for bench in benches.values())
        table.add_row("memory of ingest, MiB", f"{few:.0f}", f"{many:.0f}", f"{many / few:.2f}")
        console.print(table)


def show_pending(console: Console, count: int, milliseconds: int, throttled: int, rate: int) -> None:
    """Let gorush be down with many deliveries due, then back: memory, first attempts beside it, time to drain.

    Args:
        console: where the figures go.
        count: deliveries that are due.
        milliseconds: that a push takes.
        throttled: devices of a thousand to which no push gets through: their deliveries are not waited for.
        rate: first attempts a second.
    """
    with running(2) as bench:
        for works, devices in (("", FEW_KEYS - throttled), ("throttled", throttled)):
            register(bench, devices, f"slow-{milliseconds}-{works}")
        stack = bench.stack
        at_rest = Identity.of(stack.key).at_rest
        watched_processes = {"dispatch worker": stack.workers["dispatch"], "beat": stack.beat}
        console.print(f"first attempts at {rate}/s, nothing pending: {_latencies(bench, rate)}")
        _show_memory(console, "before", watched_processes)
        with stack.connect() as connection:
            with gorush_fault(stack.gorush_url, kind="status", status=503):
                for first in track(range(0, count, CHUNK), description="pending deliveries"):
                    keys = [random.randbytes(32) for _ in range(min(CHUNK, count - first))]
                    contents = [at_rest.seal_content_for_old_code(key, key, key + key) for key in keys]
                    values = {"delivery_keys": keys, "contents": contents, "devices": FEW_KEYS}
                    connection.execute(ADD_PENDING, values)
                connection.execute("VACUUM ANALYZE deliveries")
                time.sleep(20)
                _show_memory(console, f"gorush down, {_pending(connection):,} pending", watched_processes)
            wait_until(lambda: _pending(connection) < count, timeout=120, what="gorush is used again", interval=0.2)
            backlog_size, start_time = _pending(connection), time.monotonic()
            latencies = _latencies(bench, rate)
            console.print(f"first attempts at {rate}/s while the backlog drains: {latencies}")
            drained = (backlog_size - _pending(connection)) / (time.monotonic() - start_time)
            console.print(f"drains by {drained:.0f}/s beside them")
            _show_memory(console, "while it drains", watched_processes)
            if throttled:
                return
            wait_until(lambda: _pending(connection) == 0, timeout=3600, what="all are delivered", interval=2)
            seconds = time.monotonic() - start_time
            console.print(
                f"{backlog_size:,} deliveries drained in {seconds:.0f} s, {backlog_size / seconds:.0f} a second"
            )
            _show_memory(console, "after it", watched_processes)


def show_outage(console: Console, seconds: int, rate: int) -> None:
    """Let gorush be away while requests go on, then back: latency of new pushes, and time until the backlog is gone.

    Args:
        console: where the figures go.
        seconds: of the outage.
        rate: of push requests a second, before, during and after it.
    """
    with running(1) as bench:
        register(bench, FEW_KEYS)
        console.print(f"before: pushes at {rate}/s: {_latencies(bench, rate)}")
        messages = requests(bench, rate * seconds)
        with bench.stack.connect() as connection:
            with gorush_fault(bench.stack.gorush_url, kind="status", status=503):
                start_time = time.monotonic()
                relay_at(bench.stack.node_url, messages, rate)
                most = 0.9 * len(messages)
                wait_until(lambda: _pending(connection) >= most, timeout=TIMEOUT, what="pushes are pending")
                console.print(
                    f"gorush away for {time.monotonic() - start_time:.0f} s: {_pending(connection):,} pending"
                )
            start_time, drain_seconds = time.monotonic(), None
            while drain_seconds is None:
                pending, latencies = _pending(connection), _latencies(bench, rate)
                drain_seconds = time.monotonic() - start_time if _pending(connection) < 0.01 * len(messages) else None
                console.print(
                    f"{time.monotonic() - start_time:.0f} s after: {pending:,} were pending; new pushes: {latencies}"
                )
            console.print(f"gone after {drain_seconds:.0f} s; without a backlog: {_latencies(bench, rate)}")


def _latencies(bench: Bench, rate: int) -> str:
    """Return how long pushes of first attempts take from node to gorush, at an even rate."""
    latencies = sorted(waits(bench, requests(bench, rate * SECONDS), rate, patience=TIMEOUT))
    middle, late = percentile(latencies, 0.5), percentile(latencies, 0.99)
    return f"p50 {1000 * middle:.0f} ms, p99 {1000 * late:.0f} ms"


def _pending(connection) -> int:
    return connection.execute("SELECT count(*) FROM deliveries WHERE state IN ('pending', 'posting')").fetchone()[0]


def _show_memory(console: Console, when: str, processes: dict[str, Process]) -> None:
    sizes = ", ".join(f"{name} {memory(process) / MIB:.0f} MiB" for name, process in processes.items())
    console.print(f"memory, {when}: {sizes}")


def show_growth(console: Console, messages: int) -> None:
    """Print the memory of a dispatch worker's parent and of its one process, and how much each grew in the later half.

    Args:
        console: where the figures go.
        messages: in all.
    """
    with running(1) as bench:
        register(bench, 500)
        usage = {}
        for message_count in track(range(STEP, messages + 1, STEP), description="messages", console=console):
            relay(bench.stack.node_url, requests(bench, STEP))
            rest(bench)
            parent, child = (each.memory_full_info().uss / MIB for each in family(bench.stack.workers["dispatch"]))
            usage[message_count] = parent, child
    for message_count, (parent, child) in usage.items():
        console.print(f"after {message_count:,} messages: parent {parent:.1f} MiB, process {child:.1f} MiB")
    last, half = (
        max(usage),
        min(message_count for message_count in usage if message_count >= messages / 2),
    )
    grown = [now - before for before, now in zip(usage[half], usage[last], strict=True)]
    console.print(f"growth from {half:,} to {last:,} messages: parent {grown[0]:.2f} MiB, process {grown[1]:.2f} MiB")
