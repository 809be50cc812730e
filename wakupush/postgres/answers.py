"""The outbox of sealed answers."""

from collections.abc import Collection, Mapping, Sequence

from psycopg import Connection

from wakupush.model.entries import SealedAnswer
from wakupush.postgres.named_sql import load

_SQL = load("answers")


def add(connection: Connection, answers: Sequence[SealedAnswer], hold: float) -> list[int]:
    """Put answers into the outbox and return their ids, in order.

    Args:
        connection: in the transaction of the answered messages.
        hold: seconds for which beat leaves them to the worker that added them.
    """
    if not answers:
        return []
    rows = connection.execute(
        _SQL["add"],
        {
            "pubsub_topics": [answer.pubsub_topic for answer in answers],
            "content_topics": [answer.content_topic for answer in answers],
            "payloads": [answer.payload for answer in answers],
            "trace_ids": [answer.trace_id for answer in answers],
            "hold": hold,
        },
    )
    return sorted(row[0] for row in rows)


def remove(connection: Connection, ids: Collection[int]) -> None:
    """Delete answers that a node has taken."""
    connection.execute(_SQL["remove"], {"ids": list(ids)})


def withdraw(connection: Connection, ids: Collection[int], hold: float) -> set[int]:
    """Delete answers that others replace, and return their ids; what beat has claimed to publish stays.

    Args:
        connection: in the transaction that replaces them.
        hold: as it was when they were added.
    """
    return {answer_id for (answer_id,) in connection.execute(_SQL["withdraw"], {"ids": list(ids), "hold": hold})}


def postpone(connection: Connection, ids: Collection[int], seconds: float) -> None:
    """Leave answers to beat, which takes them after this many seconds, or a quarter of their age if that is more."""
    connection.execute(_SQL["postpone"], {"ids": list(ids), "seconds": seconds})


def claim(
    connection: Connection, limits: Mapping[str, int], limit: int, *, most_bytes: int, hold: float
) -> list[tuple[int, SealedAnswer, float]]:
    """Return the newest answers that are overdue, the newest first, with their age; hold them back from others.

    Args:
        limits: answers of a shard at most.
        limit: of any other shard.
        most_bytes: of all of them; the first one may have more.
        hold: seconds for which they are held back.

    Returns:
        The id of each, the answer, and the seconds since it was added.
    """
    values = {
        "shards": list(limits),
        "limits": list(limits.values()),
        "limit": limit,
        "bytes": most_bytes,
        "hold": hold,
    }
    rows = sorted(connection.execute(_SQL["claim"], values), reverse=True)
    return [
        (answer_id, SealedAnswer(pubsub_topic=shard, content_topic=topic, payload=payload, trace_id=trace_id), age)
        for answer_id, shard, topic, payload, trace_id, age in rows
    ]


def expire(connection: Connection, keep: float, limit: int) -> int:
    """Delete answers older than `keep` seconds, for which no client waits any more; return how many.

    Args:
        limit: answers of a shard at most.
    """
    return connection.execute(_SQL["expire"], {"keep": keep, "limit": limit}).rowcount
