"""The ledger of processed messages, the attempts of those that failed, and the quarantine."""

import time
from collections.abc import Collection
from typing import Final

from psycopg import Connection

from wakupush.model.entries import Entry
from wakupush.model.queues import Queue
from wakupush.model.registrations import Installation
from wakupush.postgres.named_sql import load

_SQL = load("ledger")
#: A message that is not older is not stamped before yesterday, even if Postgres' clock is an hour off.
_RECENT_NANOSECONDS: Final = 23 * 3600 * 10**9


def add(connection: Connection, entries: Collection[Entry]) -> set[bytes]:
    """Enter messages as processed, and return the hashes of those that were not yet.

    Waits for other transactions that are entering the same messages. One that is stamped before yesterday is entered
    twice, because the partition of its day may be dropped before its time is over.
    """
    identities = sorted({(entry.hash, entry.message.timestamp) for entry in entries})
    # Both statements do the same with recent messages, and one of them costs less.
    is_recent = all(timestamp > time.time_ns() - _RECENT_NANOSECONDS for _, timestamp in identities)
    rows = connection.execute(
        _SQL["add_recent" if is_recent else "add"],
        {"hashes": [hash_ for hash_, _ in identities], "timestamps": [timestamp for _, timestamp in identities]},
    )
    return {row[0] for row in rows}


def remove(connection: Connection, entries: Collection[Entry]) -> None:
    """Take messages out again that were entered in this transaction, and are not handled in it after all."""
    connection.execute(_SQL["remove"], {"hashes": [entry.hash for entry in entries]})


def known(connection: Connection, entries: Collection[Entry]) -> set[bytes]:
    """Return the hashes of the processed ones of these messages."""
    rows = connection.execute(_SQL["known"], {"hashes": [entry.hash for entry in entries]}).fetchall()
    return {row[0] for row in rows}


def attempts(connection: Connection, entries: Collection[Entry]) -> dict[bytes, int]:
    """Return how often a worker handled each of these messages alone."""
    return dict(connection.execute(_SQL["attempts"], {"hashes": [entry.hash for entry in entries]}).fetchall())


def count_attempt(connection: Connection, entry: Entry) -> None:
    """Count an attempt; to be committed before it starts."""
    connection.execute(_SQL["count_attempt"], {"hash": entry.hash})


def touch_attempt(connection: Connection, entry: Entry) -> None:
    """Write to the attempts of a message without a change: the time that this takes shows whether Postgres is well."""
    connection.execute(_SQL["touch_attempt"], {"hash": entry.hash})


def refund_attempt(connection: Connection, entry: Entry) -> None:
    """Take back an attempt that failed through no fault of the message."""
    connection.execute(_SQL["refund_attempt"], {"hash": entry.hash})


def forget_attempts(connection: Connection, entry: Entry) -> None:
    """Forget the attempts of a message that is done, and its row in quarantine if an operator had it retried."""
    connection.execute(_SQL["forget_attempts"], {"hash": entry.hash})


def quarantine(
    connection: Connection, queue: Queue, entry: Entry, *, reason: str, attempts: int, owner: Installation | None
) -> None:
    """Quarantine a message that failed alone, and enter it as processed.

    Args:
        entry: the message, as the ciphertext that it arrived as.
        reason: the name of the last exception, or that the process died. Never its text.
        owner: whose registration it is, if that is known: it goes when the owner unregisters.
    """
    add(connection, [entry])
    connection.execute(
        _SQL["quarantine"],
        {
            "hash": entry.hash,
            "queue": queue.name,
            "pubsub_topic": entry.pubsub_topic,
            "content_topic": entry.message.content_topic,
            "payload": entry.message.payload,
            "timestamp": entry.message.timestamp,
            "meta": entry.message.meta,
            "seen": entry.seen,
            "reason": reason,
            "attempts": attempts,
            "key_hash": owner and owner.key_hash,
            "installation_hash": owner and owner.installation_hash,
        },
    )
    forget_attempts(connection, entry)
