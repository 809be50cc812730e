"""Registrations that come from elsewhere than a message: out of the archive, or of another server's database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import Connection
from redis import Redis
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from wakupush.model.registrations import Change, Installation
from wakupush.postgres import query_topics, rebuilding
from wakupush.protocol.at_rest import AtRest
from wakupush.redis import watched
from wakupush.server.errors import COLLISIONS, OF_THE_MESSAGE

#: What Postgres raises if it cannot hold what is in a registration.
_OF_THE_MESSAGE: tuple[type[Exception], ...] = (psycopg.DataError, *OF_THE_MESSAGE)


class LoadError(Exception):
    """Postgres failed; the text has nothing of what was to be stored, which Postgres' own error text may repeat."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The result of storing some changes."""

    #: How many were newer than what was stored.
    stored: int
    #: What Postgres cannot hold.
    refused: tuple[Change, ...] = ()


def load(
    connection: Connection,
    changes: Sequence[Change],
    at_rest: AtRest,
    known_columns: Mapping[Installation, Mapping[str, Any]] | None = None,
) -> Loaded:
    """Store changes that are newer than what is stored, in a transaction; those that cannot be held are returned.

    Args:
        connection: outside of a transaction.
        changes: one for each installation.
        at_rest: seals what is secret of them.
        known_columns: see `wakupush.postgres.rebuilding.merge`.

    Raises:
        LoadError: Postgres failed.
    """
    if not changes:
        return Loaded(0)
    try:
        return Loaded(_merge(connection, changes, at_rest, known_columns))
    except _OF_THE_MESSAGE:
        if len(changes) == 1:
            return Loaded(0, tuple(changes))
        middle = len(changes) // 2
        halves = [load(connection, half, at_rest, known_columns) for half in (changes[:middle], changes[middle:])]
        return Loaded(sum(half.stored for half in halves), halves[0].refused + halves[1].refused)
    except psycopg.Error as error:
        raise LoadError(f"{type(error).__name__} (SQLSTATE {error.sqlstate})") from None


@retry(
    retry=retry_if_exception_type(COLLISIONS),
    wait=wait_random_exponential(multiplier=0.02, max=0.5),
    stop=stop_after_attempt(10),
    reraise=True,
)
def _merge(
    connection: Connection,
    changes: Sequence[Change],
    at_rest: AtRest,
    known_columns: Mapping[Installation, Mapping[str, Any]] | None,
) -> int:
    with connection.transaction():
        return rebuilding.merge(connection, changes, at_rest, known_columns)


def watch(connection: Connection, redis: Redis) -> None:
    """Let ingest watch all query topics of the database.

    Beat fills in the watched topics only if it knows that Redis lost some.

    Raises:
        RedisError: Redis did not take them.
    """
    with connection.transaction():
        for topics in query_topics.every_topic(connection):
            watched.add(redis, topics)
