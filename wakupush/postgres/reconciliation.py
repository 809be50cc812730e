"""Messages that the Stores have and the ledger lacks, and how far the Stores were walked."""

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Final

from psycopg import Connection

from wakupush.postgres.named_sql import load, value

_SQL = load("reconciliation")
#: Seconds after the last attempt of a message that is handled alone for which a worker, or its queue, still has it:
#: longer than the visibility time-out of the broker and a task's time limit together.
IN_WORK_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class Track:
    """The Store, shard and walk of a watermark."""

    #: Name of the node.
    store: str
    #: The shard.
    pubsub_topic: str
    #: Name of the kind of walk.
    walk: str


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far a Store was walked."""

    track: Track
    #: Seconds since the epoch.
    walked_to: float


def find_missing(
    connection: Connection, hashes: Collection[bytes], in_work: float = IN_WORK_SECONDS
) -> dict[bytes, bool]:
    """Return which of these messages (hashes of 32 bytes) are not in the ledger.

    A quarantined message is in the ledger. The hash alone decides: it covers the timestamp, which a Store does not give
    if it is asked for hashes only.

    Args:
        in_work: seconds since the last attempt for which a message counts as being handled.

    Returns:
        For each of them whether its attempts are being counted right now: then it must not be enqueued once more.
    """
    return dict(connection.execute(_SQL["missing"], {"hashes": list(hashes), "in_work": in_work}).fetchall())


def watermark(connection: Connection, track: Track) -> int | None:
    """Return up to when the ledger has everything that the Store has, in nanoseconds since the epoch."""
    at = value(connection, _SQL["watermark"], asdict(track))
    return None if at is None else int(at)


def watermarks(connection: Connection, stores: Collection[str]) -> list[Watermark]:
    """Return how far the Stores of these names were walked."""
    rows = connection.execute(_SQL["watermarks"], {"stores": list(stores)}).fetchall()
    return [Watermark(Track(*names), walked_to) for *names, walked_to in rows]


def advance(connection: Connection, track: Track, walked_to: int, *, most: int) -> int:
    """Move a watermark forward, never back unless it is beyond `most`, and return where it is.

    All of them in nanoseconds since the epoch.
    """
    at = value(connection, _SQL["advance"], asdict(track) | {"walked_to": walked_to, "most": most})
    return walked_to if at is None else int(at)


def place(connection: Connection, track: Track, at: int) -> None:
    """Note up to where a walk went (nanoseconds since the epoch), be it forward or back."""
    connection.execute(_SQL["place"], asdict(track) | {"walked_to": at})
