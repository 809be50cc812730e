"""Deferred queries: workers open them once the key of their topic is derived, or by chance."""

from collections.abc import Collection

from psycopg import Connection

from wakupush.model.entries import Entry
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres.named_sql import load
from wakupush.postgres.query_topics import QueryTopic

_SQL = load("waiting_queries")


def add(connection: Connection, queries: Collection[tuple[Entry, float | None]]) -> None:
    """Defer queries.

    Args:
        connection: in the transaction that entered them as processed.
        queries: each with the seconds after which it is due; None if it waits for the key of its topic.
    """
    connection.execute(
        _SQL["add"],
        {
            "hash": [entry.hash for entry, _ in queries],
            "pubsub_topic": [entry.pubsub_topic for entry, _ in queries],
            "content_topic": [entry.message.content_topic for entry, _ in queries],
            "payload": [entry.message.payload for entry, _ in queries],
            "timestamp": [entry.message.timestamp for entry, _ in queries],
            "meta": [entry.message.meta for entry, _ in queries],
            "seen": [entry.seen for entry, _ in queries],
            "wait": [wait for _, wait in queries],
        },
    )


def awaited(connection: Connection, age: float, most: int) -> list[QueryTopic]:
    """Return topics without a derived key on which queries wait, one user of each.

    Args:
        connection: to the database.
        age: seconds since their users registered; those come first that are next to it, in powers.
        most: topics.
    """
    rows = connection.execute(_SQL["awaited"], {"age": age, "most": most})
    return [QueryTopic(key_hash, prefixed, None) for key_hash, prefixed in rows]


def wake(connection: Connection) -> None:
    """Make queries due that wait for the key of their topic, once all users of the topic have one."""
    connection.execute(_SQL["wake"])


def take(connection: Connection, most: int) -> list[Entry]:
    """Delete queries that are due, and return them."""
    rows = connection.execute(_SQL["take"], {"most": most})
    return [
        Entry(shard, hash_, seen, WakuMessage(payload=payload, content_topic=topic, timestamp=timestamp, meta=meta))
        for shard, hash_, seen, payload, topic, timestamp, meta in rows
    ]


def expire(connection: Connection, keep: float) -> int:
    """Delete queries that were seen more than `keep` seconds ago; return how many."""
    return connection.execute(_SQL["expire"], {"keep": keep}).rowcount


def trim(connection: Connection, *, rows: int, bytes: int) -> int:  # noqa: A002 - the unit
    """Delete random queries above so many rows or bytes; return how many."""
    return connection.execute(_SQL["trim"], {"rows": rows, "bytes": bytes}).rowcount


def count(connection: Connection) -> tuple[int, int]:
    """Return how many queries wait for the key of their topic, and how many for their turn."""
    row = connection.execute(_SQL["count"]).fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)
