"""What benchmarks ask of a server's Postgres and Redis, and what they set there before a measurement."""

from __future__ import annotations

import time
from datetime import datetime

import httpx2

from benchmarks import made
from benchmarks.made import User
from benchmarks.running import Bench
from wakupush.devnet.parts.processes import wait_until
from wakupush.model.queues import QUEUES
from wakupush.redis.backlog import UNACKED

#: Seconds until everything that was sent is done.
PATIENCE = 300.0
#: Seconds between two looks that both find nothing to do: what ingest has read may not be in a queue yet.
PAUSE = 0.1
#: Answers that wait to be published, and deliveries under a lease. What is tried again later is done for now.
STORED = "SELECT (SELECT count(*) FROM answers) + (SELECT count(*) FROM deliveries WHERE state = 'posting')"
HANDLED = "SELECT count(*), extract(epoch FROM max(received_at))::float8 FROM ledger WHERE received_at > %s"
SET_TOPIC_KEY = "UPDATE query_topics SET symmetric_key = %s WHERE key_hash = %s"
SET_OTHER_TOPIC_KEYS = "UPDATE query_topics SET symmetric_key = sha256(key_hash) WHERE symmetric_key IS NULL"


def rest(bench: Bench) -> None:
    """Wait until a server has nothing to do.

    Raises:
        WaitTimeoutError: it still has work after minutes.
    """

    def rests() -> bool:
        if _waiting(bench):
            return False
        time.sleep(PAUSE)
        return not _waiting(bench)

    wait_until(rests, timeout=PATIENCE, what="the server has nothing to do", interval=PAUSE)


def _waiting(bench: Bench) -> int:
    """Return how much of the begun work is not done."""
    unread = httpx2.get(f"{bench.stack.node_url}/dev/counters", trust_env=False).json()["unread"]
    queued = sum(map(bench.redis.llen, QUEUES)) + bench.redis.hlen(UNACKED)
    [(stored,)] = bench.connection.execute(STORED).fetchall()
    return int(unread + queued + stored)


def handled(bench: Bench, since: datetime) -> tuple[int, float]:
    """Return how many messages were handled since a time, of whatever kind, and when the last one was (Unix time)."""
    [(count, last)] = bench.connection.execute(HANDLED, [since]).fetchall()
    return int(count), float(last or 0.0)


def now(bench: Bench) -> datetime:
    """Return the time in Postgres."""
    [(time_there,)] = bench.connection.execute("SELECT now()").fetchall()
    return time_there


def set_topic_keys(bench: Bench, users: list[User]) -> None:
    """Set the keys of the query topics of users for whom others ask, so that deriving them is not measured."""
    for key_hash, key in bench.make(made.topic_key, users):
        bench.connection.execute(SET_TOPIC_KEY, [key, key_hash])


def set_other_topic_keys(bench: Bench) -> None:
    """Let no key be left to derive, which the schedule does when there is nothing else to do.

    No client queries these users, so the values that are set need not be valid keys.
    """
    bench.connection.execute(SET_OTHER_TOPIC_KEYS)
