"""Shadow: when it began and ended, and the messages that were decided but not answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush.model.entries import Entry
from wakupush.model.queues import QUEUES
from wakupush.model.shadow import Expected, ShadowState
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres.named_sql import load
from wakupush.protocol.at_rest import REQUEST_ID_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from psycopg import Connection

    from wakupush.model.queues import Queue
    from wakupush.model.shadow import Shadowed

_SQL = load("shadow")


def begin(connection: Connection) -> None:
    """Begin the shadow, unless that was done before."""
    connection.execute(_SQL["begin"])


def state(connection: Connection) -> ShadowState | None:
    """Return its state; None if this server is the only one."""
    row = connection.execute(_SQL["state"]).fetchone()
    return ShadowState(*row) if row else None


def end(connection: Connection, answers_since: float) -> int | None:
    """End the shadow, and forget messages that were seen before a time (seconds since the epoch); return how many.

    Return None if it had ended before.

    Args:
        connection: in a transaction: no worker may handle a repeat of a request that is not remembered yet.
        answers_since: messages seen from then on are answered and pushed.
    """
    if not connection.execute(_SQL["end"], {"answers_since": answers_since}).rowcount:
        return None
    return forget(connection, 0.0)


def keep(connection: Connection, messages: Collection[Shadowed]) -> None:
    """Keep messages, in the transaction that entered them as processed."""
    entries = [message.entry for message in messages]
    ids = [message.request_id for message in messages]
    connection.execute(
        _SQL["keep"],
        {
            "hash": [entry.hash for entry in entries],
            "queue": [message.queue.name for message in messages],
            "pubsub_topic": [entry.pubsub_topic for entry in entries],
            "content_topic": [entry.message.content_topic for entry in entries],
            "payload": [entry.message.payload for entry in entries],
            "timestamp": [entry.message.timestamp for entry in entries],
            "meta": [entry.message.meta for entry in entries],
            "seen": [entry.seen for entry in entries],
            "answer_topic": [message.answer_topic for message in messages],
            "answer_bytes": [message.answer_bytes[0] for message in messages],
            "request_id": [None if id_ is None else id_[:REQUEST_ID_BYTES] for id_ in ids],
        },
    )


def take(connection: Connection, most: int) -> list[tuple[Queue, Entry]]:
    """Delete messages that are to be answered after all, and return them with their queues, the oldest first."""
    rows = connection.execute(_SQL["take"], {"most": most}).fetchall()
    return [
        (
            QUEUES[queue],
            Entry(
                pubsub_topic=shard,
                hash=hash_,
                seen=seen,
                message=WakuMessage(payload=payload, content_topic=topic, version=1, timestamp=timestamp, meta=meta),
            ),
        )
        for queue, shard, hash_, seen, payload, topic, timestamp, meta in sorted(rows, key=lambda row: float(row[3]))
    ]


def forget(connection: Connection, keep: float) -> int:
    """Delete messages that the other server answered, and remember their requests; return how many.

    These are messages that were seen before the switch or, until its time is known, more than `keep` seconds ago.
    """
    return _number(connection, "forget", keep=keep)


def trim(connection: Connection, *, rows: int, bytes: int) -> int:  # noqa: A002 - the unit
    """Delete random messages above so many rows or bytes, and remember their requests; return how many."""
    return _number(connection, "trim", rows=rows, bytes=bytes)


def count(connection: Connection) -> tuple[int, int]:
    """Return how many messages are kept, and their bytes."""
    row = connection.execute(_SQL["count"]).fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)


def count_since(connection: Connection, since: float) -> int:
    """Return how many of them were seen since a time, in seconds since the epoch."""
    return _number(connection, "count_since", since=since)


def sample(connection: Connection, before: float, most: int) -> list[Expected]:
    """Return, for some of them that were seen before a time (seconds since the epoch), which answer is expected."""
    return [Expected(*row) for row in connection.execute(_SQL["sample"], {"before": before, "most": most})]


def _number(connection: Connection, name: str, **values: Any) -> int:
    row = connection.execute(_SQL[name], values).fetchone()
    return int(row[0]) if row else 0
