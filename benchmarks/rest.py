"""Waiting until a server has nothing to do."""

from __future__ import annotations

import time

import httpx2
from psycopg import Connection
from redis import Redis

from wakupush.devnet.parts.processes import wait_until
from wakupush.model.queues import QUEUES
from wakupush.redis.backlog import UNACKED

#: Seconds until everything that was sent is done.
PATIENCE = 300.0
#: Seconds between two looks that both find nothing to do: what ingest has read may not be in a queue yet.
PAUSE = 0.1
#: Answers that wait to be published, and deliveries under a lease. What is tried again later is done for now.
STORED = "SELECT (SELECT count(*) FROM answers) + (SELECT count(*) FROM deliveries WHERE state = 'posting')"


def rest(node_url: str, redis: Redis, connection: Connection) -> None:
    """Wait until a server has nothing to do.

    Raises:
        WaitTimeoutError: it still has work after minutes.
    """

    def rests() -> bool:
        if _waiting(node_url, redis, connection):
            return False
        time.sleep(PAUSE)
        return not _waiting(node_url, redis, connection)

    wait_until(rests, timeout=PATIENCE, what="the server has nothing to do", interval=PAUSE)


def _waiting(node_url: str, redis: Redis, connection: Connection) -> int:
    """Return how much of the begun work is not done."""
    unread = httpx2.get(f"{node_url}/dev/counters", trust_env=False).json()["unread"]
    return int(unread) + queued_and_stored(redis, connection)


def handled(connection: Connection) -> int:
    """Return how many messages were handled, of whatever kind."""
    [(count,)] = connection.execute("SELECT count(*) FROM ledger").fetchall()
    return int(count)


def queued_and_stored(redis: Redis, connection: Connection) -> int:
    """Return how much of what ingest has read is not done."""
    queued = sum(map(redis.llen, QUEUES)) + redis.hlen(UNACKED)
    [(stored,)] = connection.execute(STORED).fetchall()
    return int(queued + stored)
