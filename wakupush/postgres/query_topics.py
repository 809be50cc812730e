"""Query topics of registered users, and the symmetric keys that were derived for them so far."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from psycopg import Connection

from wakupush.postgres.maintenance import wait_shortly_for_locks
from wakupush.postgres.named_sql import load, value
from wakupush.protocol.topics import query_topic, topic

_SQL = load("query_topics")
#: Key of the advisory lock between additions of topics (shared) and the sweep that removes them ("topics" in ASCII).
_LOCK = {"lock": 0x746F70696373}


@dataclass(frozen=True, slots=True)
class QueryTopic:
    """A topic of a registered user; several users can share its 4 bytes."""

    #: Of the user, 64 bytes.
    key_hash: bytes
    #: Whether its name has ``0x`` before the key hash, as the specification writes it.
    prefixed: bool
    #: 32 bytes, None if not derived yet.
    symmetric_key: bytes | None = field(repr=False)


def add(connection: Connection, key_hashes: Collection[bytes]) -> set[bytes]:
    """Add the two topics of each of these users, and return all of these topics (4 bytes each).

    Until the transaction ends the sweep waits, so that it does not remove what was just added.
    """
    connection.execute(_SQL["lock_shared"], _LOCK)
    rows = [
        (key, prefixed, topic(query_topic(key, prefixed=prefixed)))
        for key in sorted(key_hashes)
        for prefixed in (False, True)
    ]
    keys, prefixes, topics = zip(*rows, strict=True)
    connection.execute(_SQL["add"], {"key_hashes": list(keys), "prefixed": list(prefixes), "topics": list(topics)})
    return set(topics)


def candidates(connection: Connection, topics: Collection[bytes], most: int) -> dict[bytes, list[QueryTopic]]:
    """Return the users who may be asked for on these topics.

    Args:
        connection: to the database.
        topics: 4 bytes each.
        most: users of a topic; of more, chance decides, but users with a device that some push reached come first.
    """
    users: dict[bytes, list[QueryTopic]] = {}
    rows = connection.execute(_SQL["candidates"], {"topics": list(topics), "most": most})
    for topic_, key_hash, prefixed, key in rows:
        users.setdefault(topic_, []).append(QueryTopic(key_hash, prefixed, key))
    return users


def count_without_key(connection: Connection) -> int:
    """Return how many topics have no derived key yet."""
    return int(value(connection, _SQL["count_without_key"]))


def without_key(connection: Connection, after: bytes, *, prefixed: bool, most: int) -> list[bytes]:
    """Return the next users, by their key hashes, whose topic has no derived key yet.

    Args:
        after: key hash of the last one before; empty for the first.
    """
    rows = connection.execute(_SQL["without_key"], {"after": after, "prefixed": prefixed, "most": most})
    return [row[0] for row in rows]


def underived(connection: Connection, most: int) -> list[QueryTopic]:
    """Return topics, as clients use them, that have no derived key yet: those of the users who registered last."""
    rows = connection.execute(_SQL["underived"], {"most": most})
    return [QueryTopic(key_hash, prefixed, None) for key_hash, prefixed in rows]


def set_keys(connection: Connection, keys: dict[bytes, bytes], *, prefixed: bool) -> int:
    """Keep derived keys (32 bytes each) of users' topics, by key hash; return how many were missing."""
    values = {"key_hashes": list(keys), "symmetric_keys": list(keys.values()), "prefixed": prefixed}
    return connection.execute(_SQL["set_keys"], values).rowcount


def every_topic(connection: Connection, *, since: float | None = None) -> Iterator[list[bytes]]:
    """Yield all topics, sorted, in chunks of at most 1,000 and in constant memory; needs a transaction.

    Args:
        since: leave out those that were added before this time, in seconds since the epoch.
    """
    with connection.cursor(name="every_topic") as cursor:
        cursor.execute(*((_SQL["all"],) if since is None else (_SQL["since"], {"since": since})))
        while rows := cursor.fetchmany(1000):
            yield [row[0] for row in rows]


def wait_for_additions(connection: Connection) -> None:
    """Wait until every transaction that is adding topics has ended; others wait behind this one, so not long.

    Raises:
        LockNotAvailable: one of them takes longer than `maintenance.LOCK_SECONDS`.
    """
    wait_shortly_for_locks(connection)
    connection.execute(_SQL["lock"], _LOCK)


def unused(connection: Connection, after: bytes, most: int) -> tuple[bytes | None, list[bytes]]:
    """Look at the next `most` topics by key hash, without a lock, and return which users have no registration.

    Args:
        after: key hash of the last user before; empty for the first.

    Returns:
        The key hash of the last user of this part, None behind the last topic, and those without a registration.
    """
    row = connection.execute(_SQL["unused"], {"after": after, "most": most}).fetchone()
    return row or (None, [])


def remove_unused(connection: Connection, key_hashes: Collection[bytes]) -> list[bytes]:
    """Delete the topics of those of these users who still have no registration; return those that nobody has any more.

    Until the transaction ends, no other transaction adds topics. While this one waits for those that are adding some,
    all others wait behind it, so it does not wait long.

    Raises:
        LockNotAvailable: one of them takes longer than `maintenance.LOCK_SECONDS`.
    """
    wait_for_additions(connection)
    return [row[0] for row in connection.execute(_SQL["remove_unused"], {"key_hashes": list(key_hashes)})]
