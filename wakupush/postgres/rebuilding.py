"""Putting registrations that come from elsewhere than a message into the table, beside a server that writes to it."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from psycopg import Connection

from wakupush.model.registrations import Change, Installation, Registration
from wakupush.postgres import query_topics, registrations
from wakupush.postgres.named_sql import load, value
from wakupush.protocol.at_rest import KEYED_COLUMNS, AtRest

_SQL = load("rebuilding")

#: Columns that a client's messages decide. Not among these: what the platforms reported, and since when it has
#: its access token.
COLUMNS: Final = (
    "key_hash",
    "installation_hash",
    "app",
    "server_key",
    "version",
    "request_digest",
    "registered",
    "token_type",
    "enabled",
    "allow_from_contacts_only",
    "block_mentions",
    *KEYED_COLUMNS,
)


def merge(
    connection: Connection,
    changes: Sequence[Change],
    at_rest: AtRest,
    known_columns: Mapping[Installation, Mapping[str, Any]] | None = None,
) -> int:
    """Store changes that are newer than the stored rows, and the query topics of registered users; return how many.

    No version is lowered, and merging again changes nothing. An unregistration deletes the installation's deliveries,
    dead letters and quarantined messages, as in `wakupush.postgres.registrations.store`.

    Args:
        connection: in a transaction of its own, which is to be committed soon: the rows are locked.
        changes: one for each installation.
        at_rest: seals their secret fields.
        known_columns: columns of some of them by name, which replace those that are made from the change.
    """
    connection.execute(_SQL["stage"])
    with connection.cursor() as cursor, cursor.copy(_SQL["copy"]) as copy:
        for change in changes:
            replacements = known_columns.get(change.installation) if known_columns else None
            copy.write_row(row(change, at_rest, replacements=replacements))
    count = int(value(connection, _SQL["merge"]))
    users = {change.installation.key_hash for change in changes if isinstance(change.registration, Registration)}
    if users:
        query_topics.add(connection, users)
    return count


def row(change: Change, at_rest: AtRest, *, replacements: Mapping[str, Any] | None = None) -> list[Any]:
    """Return the values of a change, in the order of `COLUMNS`; `replacements` are columns by name, as for `merge`."""
    registration = change.registration
    values = registrations.key(change) | {"registered": False}
    if isinstance(registration, Registration):
        values = registrations.row(change, registration, at_rest) | {"registered": True}
    values |= replacements or {}
    return [values.get(name) for name in COLUMNS]
