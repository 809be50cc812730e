"""How costs and memory depend on the number of registered keys, of pending deliveries and of messages."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import httpx2
from redis import Redis
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import made
from benchmarks.loads import ASKED, Load, measure, registrations, requests, waits
from benchmarks.running import Bench, family, memory, percentile, relay, relay_at, rest, running, set_topic_keys
from wakupush.devnet.processes import Process, wait_until
from wakupush.model.platforms import TokenType
from wakupush.model.registrations import Change, Registration
from wakupush.postgres import rebuilding
from wakupush.protocol import topics
from wakupush.protocol.identity import Identity
from wakupush.redis import watched

#: Registered keys of the server that is compared with.
FEW_KEYS = 1000
#: Of the strangers in the database, those that messages are for.
SAMPLE = 2000
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


def row(identity: Identity, user: made.User, device_token: str) -> list:
    """Return the row of a user, in the order of `rebuilding.COLUMNS`."""
    registration = Registration(
        installation_id=user.installation_id,
        version=1,
        token_type=TokenType.APN,
        device_token=device_token,
        access_token=user.access_token,
        grant=random.randbytes(65),
        enabled=True,
        apn_topic="im.status.ethereum",
        allow_from_contacts_only=False,
        block_mentions=False,
        allowed_key_list=(),
        blocked_chat_list=(),
        muted_chat_list=(),
        allowed_mentions_chat_list=(),
    )
    change = Change(identity.installation(user.key_hash, user.installation_id), random.randbytes(16), registration)
    return rebuilding.row(change, identity.at_rest)


def rows_of(secret: bytes, users: list[made.User], script: str = "") -> tuple[list[list], list[tuple]]:
    """Return the rows of registrations and of query topics; `script` is what the development gorush does."""
    identity = Identity.of(made.PrivateKey(secret))
    stored = [row(identity, user, script + random.randbytes(32).hex()) for user in users]
    names = [
        (user.key_hash, prefixed, topics.query_topics(user.key_hash)[prefixed])
        for user in users
        for prefixed in (False, True)
    ]
    # Each topic has some key, so that none is derived: nobody queries these users.
    return stored, [(hashed, prefixed, topics.topic(name), random.randbytes(32)) for hashed, prefixed, name in names]


def fill_chunk(secret: bytes, script: str, count: int) -> tuple[list[list], list[tuple], list[made.User]]:
    users = [made.stranger(number) for number in range(count)]
    return *rows_of(secret, users, script), users


def register_strangers(bench: Bench, count: int, script: str = "") -> None:
    """Put users into the database, whose topics the server then watches; messages are for a sample of them."""
    work = partial(fill_chunk, bench.stack.key.secret, script)
    sizes = [CHUNK] * (count // CHUNK) + [count % CHUNK] * bool(count % CHUNK)
    share = SAMPLE / count
    with bench.stack.connect() as connection, connection.cursor() as cursor:
        for stored, query_topics, users in _bounded_map(bench, work, sizes):
            names = ", ".join(f'"{name}"' for name in rebuilding.COLUMNS)
            with cursor.copy(f"COPY registrations ({names}) FROM STDIN") as copy:
                for each in stored:
                    copy.write_row(each)
            with cursor.copy("COPY query_topics (key_hash, prefixed, topic, symmetric_key) FROM STDIN") as copy:
                for each in query_topics:
                    copy.write_row(each)
            bench.users += [user for user in users if random.random() < share]
        cursor.execute("VACUUM ANALYZE")
    with Redis.from_url(bench.stack.redis_url) as redis:
        redis.delete(watched.MARKER)
        wait_until(lambda: watched.is_complete(redis), timeout=300, what="the topics are watched", interval=0.5)


def _bounded_map(bench: Bench, work: Callable, sizes: list[int]) -> Iterator:
    """Map in the pool, two chunks ahead."""
    ahead = [bench.pool.submit(work, size) for size in sizes[:2]]
    for position in track(range(len(sizes)), description="registering"):
        if position + 2 < len(sizes):
            ahead.append(bench.pool.submit(work, sizes[position + 2]))
        yield ahead[position].result()
        ahead[position] = None


def show_keys(console: Console, loads: Sequence[Load], keys: int, runs: int) -> None:
    """Compare the cost of a message between a server with few keys and one with many, alternately in one sitting."""
    with ExitStack() as stacks:
        benches = {count: stacks.enter_context(running(1)) for count in (FEW_KEYS, keys)}
        samples = {}
        for count, bench in benches.items():
            register_strangers(bench, count)
            set_topic_keys(bench, bench.users[:ASKED])
            samples[count] = bench.users
        table = Table("", *(f"{count:,} keys" for count in benches), "ratio of the cost", box=None)
        for load in loads:
            costs: dict[int, list[float]] = {count: [] for count in benches}
            for _ in range(runs + 1):
                for count, bench in benches.items():
                    bench.users = list(samples[count])
                    costs[count].append(measure(bench, replace(load, count=SAMPLE)).total)
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
            if devices:
                register_strangers(bench, devices, f"slow-{milliseconds}-{works}")
        stack = bench.stack
        at_rest = Identity.of(stack.key).at_rest
        watched_processes = {"dispatch worker": stack.workers["dispatch"], "beat": stack.beat}
        console.print(f"first attempts at {rate}/s, nothing pending: {_latencies(bench, rate)}")
        _show_memory(console, "before", watched_processes)
        faults = f"{stack.gorush_url}/dev/faults"
        httpx2.post(faults, json={"kind": "status", "status": 503, "path": "/api/push"}).raise_for_status()
        with stack.connect() as connection:
            for first in track(range(0, count, CHUNK), description="pending deliveries"):
                keys = [random.randbytes(32) for _ in range(min(CHUNK, count - first))]
                contents = [at_rest.seal_content_for_old_code(key, key, key + key) for key in keys]
                values = {"delivery_keys": keys, "contents": contents, "devices": FEW_KEYS}
                connection.execute(ADD_PENDING, values)
            connection.execute("VACUUM ANALYZE deliveries")
            time.sleep(20)
            _show_memory(console, f"gorush down, {_pending(connection):,} pending", watched_processes)
            httpx2.delete(faults).raise_for_status()
            wait_until(lambda: _pending(connection) < count, timeout=120, what="gorush is used again", interval=0.2)
            left, begun = _pending(connection), time.monotonic()
            found = _latencies(bench, rate)
            console.print(f"first attempts at {rate}/s while the backlog drains: {found}")
            drained = (left - _pending(connection)) / (time.monotonic() - begun)
            console.print(f"drains by {drained:.0f}/s beside them")
            _show_memory(console, "while it drains", watched_processes)
            if throttled:
                return
            wait_until(lambda: _pending(connection) == 0, timeout=3600, what="all are delivered", interval=2)
            seconds = time.monotonic() - begun
            console.print(f"{left:,} deliveries drained in {seconds:.0f} s, {left / seconds:.0f} a second")
            _show_memory(console, "after it", watched_processes)


def show_outage(console: Console, seconds: int, rate: int) -> None:
    """Let gorush be away while requests go on, then back: latency of new pushes, and time until the backlog is gone.

    Args:
        console: where the figures go.
        seconds: of the outage.
        rate: of push requests a second, before, during and after it.
    """
    with running(1) as bench:
        relay(bench.stack.node_url, registrations(bench, FEW_KEYS))
        rest(bench)
        console.print(f"before: pushes at {rate}/s: {_latencies(bench, rate)}")
        faults = f"{bench.stack.gorush_url}/dev/faults"
        httpx2.post(faults, json={"kind": "status", "status": 503, "path": "/api/push"}).raise_for_status()
        messages = requests(bench, rate * seconds)
        begun = time.monotonic()
        bench.pool.submit(relay_at, bench.stack.node_url, messages, rate).result()
        with bench.stack.connect() as connection:
            wait_until(lambda: _pending(connection) >= 0.9 * len(messages), timeout=TIMEOUT, what="pushes are pending")
            console.print(f"gorush away for {time.monotonic() - begun:.0f} s: {_pending(connection):,} pending")
            httpx2.delete(faults).raise_for_status()
            begun, gone = time.monotonic(), None
            while gone is None:
                left, latencies = _pending(connection), _latencies(bench, rate)
                gone = time.monotonic() - begun if _pending(connection) < 0.01 * len(messages) else None
                console.print(f"{time.monotonic() - begun:.0f} s after: {left:,} were pending; new pushes: {latencies}")
            console.print(f"gone after {gone:.0f} s; without a backlog: {_latencies(bench, rate)}")


def _latencies(bench: Bench, rate: int) -> str:
    """Return how long pushes of first attempts take from node to gorush, at an even rate."""
    found = sorted(waits(bench, requests(bench, rate * SECONDS), rate, patience=TIMEOUT))
    middle, late = percentile(found, 0.5), percentile(found, 0.99)
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
        relay(bench.stack.node_url, registrations(bench, 500))
        rest(bench)
        found = {}
        for done in track(range(STEP, messages + 1, STEP), description="messages", console=console):
            relay(bench.stack.node_url, requests(bench, STEP))
            rest(bench)
            parent, child = (each.memory_full_info().uss / MIB for each in family(bench.stack.workers["dispatch"]))
            found[done] = parent, child
    for done, (parent, child) in found.items():
        console.print(f"after {done:,} messages: parent {parent:.1f} MiB, process {child:.1f} MiB")
    last, half = max(found), min(done for done in found if done >= messages / 2)
    grown = [now - before for before, now in zip(found[half], found[last], strict=True)]
    console.print(f"growth from {half:,} to {last:,} messages: parent {grown[0]:.2f} MiB, process {grown[1]:.2f} MiB")
