"""What grows with the number of registered keys and of pending deliveries, and what does not."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import httpx2
from redis import Redis
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import made
from benchmarks.latency import latencies, percentiles
from benchmarks.running import Bench, Run, memory, running
from wakupush.devnet.processes import Process, wait_until
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
MIB = 2**20

REGISTRATION_COLUMNS = (
    "key_hash", "installation_hash", "version", "request_digest", "registered", "installation_id", "token_type",
    "device_token", "access_token", '"grant"', "enabled", "apn_topic", "allow_from_contacts_only", "block_mentions",
    "allowed_key_list", "blocked_chat_list", "muted_chat_list", "allowed_mentions_chat_list",
)  # fmt: skip
#: Due at once, each of a registered device.
ADD_PENDING = """
    INSERT INTO deliveries (
        delivery_key, key_hash, installation_hash, platform, notification_type, chat_id, message, state, attempt,
        failure, next_attempt_at, seen_at, expires_at, task_id, trace_id
    )
    SELECT
        sha256(('pending ' || number)::bytea), key_hash, installation_hash, token_type, 1, sha256(number::text::bytea),
        sha256(number::text::bytea) || sha256(number::text::bytea), 'pending', 1, 'gorush_unreachable', now(), now(),
        now() + interval '1 day', gen_random_uuid()::text, 'benchmark'
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS number
    JOIN (
        SELECT *, row_number() OVER () - 1 AS position FROM registrations ORDER BY key_hash LIMIT %(devices)s::bigint
    ) AS device ON position = number %% %(devices)s::bigint
"""
#: What the development gorush does with pushes to these devices.
SCRIPT_TOKENS = """
    UPDATE registrations SET device_token = %(script)s::text || device_token
    FROM (SELECT ctid FROM registrations LIMIT %(devices)s::bigint) AS chosen WHERE registrations.ctid = chosen.ctid
"""


def row(identity: Identity, user: made.User) -> tuple:
    installation = identity.installation(user.key_hash, user.installation_id)
    token = random.randbytes(32).hex()
    return (
        *(user.key_hash, installation.installation_hash, 1, random.randbytes(16), True, user.installation_id, 1),
        *(token, user.access_token, random.randbytes(65), True, "im.status.ethereum", False, False),
        *([], [], [], []),
    )


def rows_of(secret: bytes, users: list[made.User]) -> tuple[list[tuple], list[tuple]]:
    """Return the rows of registrations and of query topics."""
    identity = Identity.of(made.PrivateKey(secret))
    registrations = [row(identity, user) for user in users]
    names = [
        (user.key_hash, prefixed, topics.query_topics(user.key_hash)[prefixed])
        for user in users
        for prefixed in (False, True)
    ]
    return registrations, [(key_hash, prefixed, topics.topic(name)) for key_hash, prefixed, name in names]


def fill_chunk(secret: bytes, count: int) -> tuple[list[tuple], list[tuple], list[made.User]]:
    users = [made.stranger(number) for number in range(count)]
    return *rows_of(secret, users), users


def register_strangers(bench: Bench, count: int) -> None:
    """Put users into the database, whose topics the server then watches; messages are for a sample of them."""
    work = partial(fill_chunk, bench.stack.key.secret)
    sizes = [CHUNK] * (count // CHUNK) + [count % CHUNK] * bool(count % CHUNK)
    share = SAMPLE / count
    bench.users = []
    with bench.stack.connect() as connection, connection.cursor() as cursor:
        for registrations, query_topics, users in _bounded_map(bench, work, sizes):
            with cursor.copy(f"COPY registrations ({', '.join(REGISTRATION_COLUMNS)}) FROM STDIN") as copy:
                for each in registrations:
                    copy.write_row(each)
            with cursor.copy("COPY query_topics (key_hash, prefixed, topic) FROM STDIN") as copy:
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


def show_keys(console: Console, measures: dict[str, Callable[[Bench, int], Run]], keys: int, runs: int) -> None:
    """Compare the cost of a message between a server with few keys and one with many, alternately in one sitting."""
    with ExitStack() as stacks:
        benches = {count: stacks.enter_context(running(1)) for count in (FEW_KEYS, keys)}
        samples = {}
        for count, bench in benches.items():
            register_strangers(bench, count)
            samples[count] = bench.users
        table = Table("", *(f"{count:,} keys" for count in benches), "ratio of the cost", box=None)
        for name, measure in measures.items():
            costs: dict[int, list[float]] = {count: [] for count in benches}
            for _ in range(runs + 1):
                for count, bench in benches.items():
                    bench.users = list(samples[count])
                    costs[count].append(_cost(measure(bench, SAMPLE)))
            few, many = (statistics.median(each[1:]) for each in costs.values())  # the first run warms up
            table.add_row(f"CPU µs of a message: {name}", f"{few:.0f}", f"{many:.0f}", f"{many / few:.2f}")
        few, many = (memory(bench.stack.ingest) / MIB for bench in benches.values())
        table.add_row("memory of ingest, MiB", f"{few:.0f}", f"{many:.0f}", f"{many / few:.2f}")
        console.print(table)


def _cost(run: Run) -> float:
    """Return the CPU µs of a message but for the node, gorush, and ingest, which was started for the run."""
    return (
        1e6 * sum(used for part, used in run.cpu.items() if part not in {"waku", "gorush", "ingest live"}) / run.count
    )


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
        register_strangers(bench, FEW_KEYS)
        stack = bench.stack
        with stack.connect() as connection:
            for works, devices in (("", FEW_KEYS), ("throttled", throttled)):
                connection.execute(SCRIPT_TOKENS, {"script": f"slow-{milliseconds}-{works}", "devices": devices})
        watched_processes = {"dispatch worker": stack.workers["dispatch"], "beat": stack.beat}
        console.print(f"first attempts at {rate}/s, nothing pending: {percentiles(latencies(bench, rate, 0, SECONDS))}")
        _show_memory(console, "before", watched_processes)
        faults = f"{stack.gorush_url}/dev/faults"
        httpx2.post(faults, json={"kind": "status", "status": 503, "path": "/api/push"}).raise_for_status()
        with stack.connect() as connection:
            for first in track(range(0, count, CHUNK), description="pending deliveries"):
                last = min(first + CHUNK, count) - 1
                connection.execute(ADD_PENDING, {"first": first, "last": last, "devices": FEW_KEYS})
            connection.execute("VACUUM ANALYZE deliveries")
            time.sleep(20)
            _show_memory(console, f"gorush down, {_pending(connection):,} pending", watched_processes)
            httpx2.delete(faults).raise_for_status()
            wait_until(lambda: _pending(connection) < count, timeout=120, what="gorush is used again", interval=0.2)
            left, begun = _pending(connection), time.monotonic()
            found = percentiles(latencies(bench, rate, 0, SECONDS))
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


def _pending(connection) -> int:
    return connection.execute("SELECT count(*) FROM deliveries WHERE state IN ('pending', 'posting')").fetchone()[0]


def _show_memory(console: Console, when: str, processes: dict[str, Process]) -> None:
    sizes = ", ".join(f"{name} {memory(process) / MIB:.0f} MiB" for name, process in processes.items())
    console.print(f"memory, {when}: {sizes}")
