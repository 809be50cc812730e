"""`python -m benchmarks.sizes`: computes what 1, 10 and 100 million users need from the cost of a message.

    python -m benchmarks.sizes --measure costs.json     # on a separate server: CPU, WAL, stored bytes
    python -m benchmarks.sizes --costs costs.json       # the tables of docs/internals/scale.md

The day and the week are those of `wakupush pipeline synthesize`.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from benchmarks import made
from benchmarks.attack.stored import Stored
from benchmarks.loads import backlog
from benchmarks.made import Made
from benchmarks.running import (
    Bench,
    cpu,
    idle_cpu,
    rest,
    running,
    set_other_topic_keys,
    set_topic_keys,
    suspended,
)
from wakupush.pipeline.synthetic.synthesize import HOURS, WEEKDAYS
from wakupush.runtime.settings import Settings

DAY = 86_400
MB, GB = 10**6, 10**9
#: Messages of each kind that are measured.
COUNT = 3000
#: Share of a core that is planned for: the rest is for bursts within a second.
USE = 0.6
#: Of each kind, a user and day: pushes that others ask for, questions for the user's access token, registrations (the
#: SDK registers anew every six to seven days), and messages on our topics that are not for us.
TRAFFIC = {"push request": 20.0, "query": 5.0, "registration": 1 / 6.5, "foreign": 5.0}
USERS = (10**6, 10**7, 10**8)
#: Which process belongs to which part.
PARTS = {
    "ingest live": "ingest",
    "ingest reconcile": "ingest",
    "redis": "Redis",
    "postgres": "Postgres",
    "worker registration": "workers",
    "worker query": "workers",
    "worker dispatch": "workers",
    "feedback": "workers",
    "beat": "workers",
}
#: Tables that grow with messages, by the retention that says for how long their rows stay.
RETENTIONS = {
    "ledger": "ledger",
    "deliveries": "deliveries",
    "admitted_requests": "admitted_requests",
    "events": "delivery_events",
    "exported_events": "delivery_events",
}
#: Bytes of a user's topics in Redis (docs/operating/scale.md), and of the claim of a message, which lasts two minutes.
WATCHED_BYTES = {10**6: 8.4, 10**7: 4.5, 10**8: 4.0}
CLAIM_SECONDS = 120


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a message of a kind costs."""

    #: Microseconds by part.
    cpu: dict[str, float]
    #: Bytes of write-ahead log.
    wal: float
    #: Bytes that stay, by table, with indexes.
    stored: dict[str, float]
    #: Bytes of Redis, claims among them.
    redis: float


def measure() -> dict[str, Cost]:
    """Return what messages of each kind cost a server that is started for it."""
    with running(1) as bench:
        look = partial(_cost, bench)
        pairs = bench.make(partial(made.registration, bench.server), list(range(COUNT + 500)))
        users = [user for _, user in pairs]
        look([message for message, _ in pairs[:500]])  # all that is done once
        set_topic_keys(bench, users[:20])
        costs = {"registration": look([message for message, _ in pairs[500:]])}
        queried_users = [users[number % 20] for number in range(COUNT)]
        costs["query"] = look(bench.make(made.query, queried_users))
        costs["push request"] = look(bench.make(partial(made.request, bench.server), users[:COUNT]))
        costs["foreign"] = look(bench.make(partial(made.garbage, bench.server), list(range(COUNT))))
        return costs


def _cost(bench: Bench, messages: list[Made]) -> Cost:
    stack, connection = bench.stack, bench.connection
    rest(bench)
    set_other_topic_keys(bench)
    before = Stored.now(connection, bench.redis)
    with suspended(stack.reconcile):
        idle = idle_cpu(stack)
        [(position,)] = connection.execute("SELECT pg_current_wal_lsn()").fetchall()
        start_time, used, _ = backlog(bench, messages)
        seconds, after = time.monotonic() - start_time, cpu(stack)
        [(wal,)] = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), %s)::float8", [position]).fetchall()
    grown = Stored.now(connection, bench.redis).since(before)
    spent = {name: after[name] - used[name] - idle[name] * seconds for name in idle}
    return Cost(
        cpu=_by_part({name: 1e6 * each / len(messages) for name, each in spent.items()}),
        wal=wal / len(messages),
        stored={name: size / len(messages) for name, size in grown.bytes.items()},
        redis=grown.redis / len(messages),
    )


def _by_part(by_process: dict[str, float]) -> dict[str, float]:
    """Return the sums of figures of the processes of each part."""
    sums: dict[str, float] = {}
    for name, figure in by_process.items():
        if name in PARTS:
            sums[PARTS[name]] = sums.get(PARTS[name], 0.0) + figure
    return sums


def peak() -> float:
    """Return how many times the average the busiest hour of a week is."""
    return max(HOURS) / (sum(HOURS) / len(HOURS)) * max(WEEKDAYS) / (sum(WEEKDAYS) / len(WEEKDAYS))


def a_second(users: int, of: Callable[[str], float] = lambda _: 1.0) -> float:
    """Return the average messages a second of all kinds, each multiplied by a factor, as their sum."""
    return sum(count * users / DAY * of(kind) for kind, count in TRAFFIC.items())


def rows(costs: dict[str, Cost], users: int) -> dict[str, str]:
    """Return what so many users need, by what it is."""
    settings, busiest = Settings(), peak()
    cores = {
        part: busiest * a_second(users, lambda kind, part=part: costs[kind].cpu.get(part, 0.0)) / 1e6 / USE
        for part in ("ingest", "Redis", "workers", "Postgres")
    }
    processes = math.ceil(cores["workers"])
    seconds = {name: getattr(settings.retention, name) for name in RETENTIONS}
    state = sum(costs["registration"].stored.get(table, 0.0) for table in ("registrations", "query_topics")) * users
    disk = {
        name: a_second(users, lambda kind, table=table: max(0.0, costs[kind].stored.get(table, 0.0))) * seconds[name]
        for name, table in RETENTIONS.items()
    }
    claims = busiest * a_second(users, lambda kind: costs[kind].redis) * CLAIM_SECONDS
    return {
        "messages a second, on average": f"{a_second(users):,.0f}",
        "in the busiest hour": f"{busiest * a_second(users):,.0f}",
        **{f"cores: {part}": f"{each:,.1f}" for part, each in cores.items()},
        "connections to Postgres, of workers": f"{processes * settings.postgres.pool_size:,}",
        "write-ahead log a day, GB": f"{a_second(users, lambda kind: costs[kind].wal) * DAY / GB:,.0f}",
        "registrations and topics, GB": f"{state / GB:,.1f}",
        **{
            f"`WAKUPUSH_RETENTION__{name.upper()}`, {seconds[name] / DAY:.0f} d, GB": f"{each / GB:,.0f}"
            for name, each in disk.items()
        },
        "Redis, GB": f"{(WATCHED_BYTES[users] * users + claims) / GB:,.2f}",
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.sizes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--measure", type=Path, metavar="JSON", help="measure, and write it there")
    todo.add_argument("--costs", type=Path, metavar="JSON", help="print the tables that follow from these measurements")
    options = parser.parse_args()
    if options.measure:
        measurements = {kind: asdict(cost) for kind, cost in measure().items()}
        options.measure.write_text(json.dumps(measurements, indent=1) + "\n")
        return 0
    costs = {kind: Cost(**each) for kind, each in json.loads(options.costs.read_text()).items()}
    columns = [rows(costs, users) for users in USERS]
    print("| users |", " | ".join(f"{users:,}" for users in USERS), "|")
    print("| --- |" + " --- |" * len(USERS))
    for name in columns[0]:
        print(f"| {name} |", " | ".join(column[name] for column in columns), "|")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
