"""Setting keys of query topics before a measurement, so that deriving them is not measured."""

from __future__ import annotations

from psycopg import Connection

from benchmarks import made
from benchmarks.made import User
from benchmarks.running import Bench

SET = "UPDATE query_topics SET symmetric_key = %s WHERE key_hash = %s"
SET_OTHERS = "UPDATE query_topics SET symmetric_key = sha256(key_hash) WHERE symmetric_key IS NULL"


def set_for(users: list[User], bench: Bench, connection: Connection) -> None:
    """Set the keys of users for whom others ask."""
    for key_hash, key in bench.make(made.topic_key, users):
        connection.execute(SET, [key, key_hash])


def set_others(connection: Connection) -> None:
    """Let no key be left to derive, which the schedule does when there is nothing else to do.

    No client queries these users, so the values that are set need not be valid keys.
    """
    connection.execute(SET_OTHERS)
