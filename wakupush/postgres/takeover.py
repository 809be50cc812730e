"""Taking over from another server, or handing over to one: registrations as stored, and request ids."""

from collections.abc import Collection, Iterator
from typing import Any, Final

from psycopg import Connection
from psycopg.rows import dict_row

from wakupush.model.platforms import TokenType
from wakupush.model.registrations import Installation, RegistrationRow
from wakupush.postgres import registrations
from wakupush.postgres.named_sql import load, value
from wakupush.protocol.at_rest import REQUEST_ID_BYTES

_SQL = load("takeover")
#: Rows that are read at once; the largest have a megabyte.
_PAGE: Final = 200


def stored_rows(connection: Connection, installations: Collection[Installation]) -> dict[Installation, RegistrationRow]:
    """Return those rows of these installations that exist."""
    with connection.cursor(row_factory=dict_row) as cursor:
        rows = map(_registration_row, cursor.execute(_SQL["rows_of"], registrations.pairs(installations)))
        return {row.installation: row for row in rows}


def every(connection: Connection) -> Iterator[list[RegistrationRow]]:
    """Yield all rows, by user, in constant memory; needs a transaction."""
    with connection.cursor(name="every_registration", row_factory=dict_row) as cursor:
        cursor.execute(_SQL["every"])
        while rows := cursor.fetchmany(_PAGE):
            yield list(map(_registration_row, rows))


def count(connection: Connection) -> tuple[int, int]:
    """Return how many registrations and unregistrations, and rows of request ids, there are."""
    row = connection.execute(_SQL["count"]).fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)


def requests(connection: Connection) -> Iterator[list[bytes]]:
    """Yield the ids of admitted requests (the first 16 bytes), in constant memory; needs a transaction.

    An id may come twice, if its request came twice when one week ended.
    """
    with connection.cursor(name="every_request") as cursor:
        cursor.execute(_SQL["requests"])
        while rows := cursor.fetchmany(1000):
            yield [row[0] for row in rows]


def known_requests(connection: Connection, message_ids: Collection[bytes]) -> int:
    """Return how many of these application message ids (their first 16 bytes count) are remembered."""
    ids = list({message_id[:REQUEST_ID_BYTES] for message_id in message_ids})
    return int(value(connection, _SQL["known_requests"], {"message_ids": ids}))


def _registration_row(row: dict[str, Any]) -> RegistrationRow:
    token_type = row.pop("token_type")
    return RegistrationRow(
        installation=Installation(row.pop("key_hash"), row.pop("installation_hash")),
        version=int(row.pop("version")),
        token_type=None if token_type is None else TokenType(token_type),
        **row,
    )
