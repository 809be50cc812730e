"""The quarantine: messages that failed alone, kept for an operator to inspect and retry."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from psycopg import Connection, sql

from wakupush.model.dead_letters import Position
from wakupush.model.entries import Entry
from wakupush.model.quarantine import QuarantinedMessage, QuarantineSelection
from wakupush.model.queues import QUEUES, Queue
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres.named_sql import load, value

_SQL = load("quarantine")
#: Rows that are read or changed at once; each may hold a message of the largest size.
CHUNK_ROWS: Final = 100
#: Hex digits of a message hash.
_DIGITS: Final = 64


def every(connection: Connection, selection: QuarantineSelection, most: int) -> Iterator[list[QuarantinedMessage]]:
    """Read the newest messages of a selection, `most` in all, in chunks with a statement each."""
    last: Position | None = None
    while most > 0:
        limit = min(most, CHUNK_ROWS)
        rows = connection.execute(*_compose("page", selection, last, limit=limit))
        page = [QuarantinedMessage(*row) for row in rows]
        if page:
            yield page
        if len(page) < limit:
            return
        most -= len(page)
        last = page[-1].quarantined_at, page[-1].message_hash


def count(connection: Connection, selection: QuarantineSelection) -> int:
    """Return how many messages a selection has."""
    return int(value(connection, *_compose("count", selection)))


def retry(
    connection: Connection, selection: QuarantineSelection, after: Position | None
) -> list[tuple[Position, Queue, Entry]]:
    """Remove messages from the ledger, and forget their attempts; return their positions, and the entries to enqueue.

    At most `CHUNK_ROWS`, the oldest first. Their rows stay until they are handled, so that none is lost with a queue.

    Args:
        connection: in a transaction, to be committed once they are enqueued. A worker that takes one of them earlier
            waits for the commit; if it never comes, the worker finds the message processed.
        after: only those behind this position.
    """
    rows = connection.execute(*_compose("retry", selection, after, limit=CHUNK_ROWS)).fetchall()
    return [
        (
            (quarantined_at, hash_),
            QUEUES[queue],
            # The fields that the hash does not cover are not kept: of another version nothing gets here.
            Entry(
                shard, hash_, seen, WakuMessage(payload=payload, content_topic=topic, timestamp=timestamp, meta=meta)
            ),
        )
        for quarantined_at, hash_, queue, shard, topic, payload, timestamp, meta, seen in sorted(rows)
    ]


def drop(connection: Connection, selection: QuarantineSelection, after: Position | None) -> list[Position]:
    """Delete messages, in chunks as `retry` does; in the ledger they stay processed."""
    return sorted(connection.execute(*_compose("drop", selection, after, limit=CHUNK_ROWS)).fetchall())


def trim(connection: Connection, *, bytes: int) -> int:  # noqa: A002 - as the other tables that are trimmed
    """Delete random messages beyond so many bytes; return how many."""
    return connection.execute(_SQL["trim"], {"bytes": bytes}).rowcount


def find(connection: Connection, prefix: str) -> list[bytes]:
    """Return the hashes of quarantined messages with this prefix (hex digits, at least one), two at most."""
    bounds = {"first": bytes.fromhex(prefix.ljust(_DIGITS, "0")), "last": bytes.fromhex(prefix.ljust(_DIGITS, "f"))}
    return [hash_ for (hash_,) in connection.execute(_SQL["keys"], bounds)]


def _compose(
    name: str, selection: QuarantineSelection, end: Position | None = None, **values: Any
) -> tuple[sql.Composed, dict[str, Any]]:
    """Return a query with the conditions of a selection, and its values."""
    time, key = end or (None, None)
    query = sql.SQL(_SQL[name]).format(conditions=sql.SQL(_SQL["conditions"]))
    return query, asdict(selection) | {"end_time": time, "end_key": key} | values
