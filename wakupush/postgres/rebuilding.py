"""Putting registrations that were rebuilt out of the archive into the table, beside a server that writes to it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from wakupush.model.registrations import Registration
from wakupush.postgres import query_topics
from wakupush.postgres.named_sql import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import Connection

    from wakupush.model.registrations import Change

_SQL = load("rebuilding")

#: What a client's messages say of its installation: all columns but `token_died_at` and `suspected_at`, which the
#: platforms told.
COLUMNS: Final = (
    "key_hash",
    "installation_hash",
    "version",
    "request_digest",
    "registered",
    "installation_id",
    "token_type",
    "device_token",
    "access_token",
    "grant",
    "enabled",
    "apn_topic",
    "allow_from_contacts_only",
    "block_mentions",
    "allowed_key_list",
    "blocked_chat_list",
    "muted_chat_list",
    "allowed_mentions_chat_list",
)


def merge(connection: Connection, changes: Sequence[Change]) -> int:
    """Store what is newer than what is stored, and the query topics of whoever is registered; return how many that was.

    Nothing is lowered, and merging again changes nothing. What unregisters takes the installation's deliveries, dead
    letters and quarantined messages with it, as in `wakupush.postgres.registrations.store`.

    Args:
        connection: in a transaction of its own, which is to be committed soon: the rows are locked.
        changes: one for each installation.
    """
    connection.execute(_SQL["stage"])
    with connection.cursor() as cursor:
        with cursor.copy(_SQL["copy"]) as copy:
            for change in changes:
                copy.write_row(_row(change))
        row = cursor.execute(_SQL["merge"]).fetchone()
    users = {change.installation.key_hash for change in changes if isinstance(change.registration, Registration)}
    if users:
        query_topics.add(connection, users)
    return int(row[0]) if row else 0


def _row(change: Change) -> list[Any]:
    """Return the columns of a change; an unregistration keeps the id of its installation to itself."""
    known = asdict(change.installation) | {
        "version": change.registration.version,
        "request_digest": change.request_digest,
        "registered": isinstance(change.registration, Registration),
    }
    if known["registered"]:
        known = asdict(change.registration) | known
    values = (known.get(name) for name in COLUMNS)
    return [list(value) if isinstance(value, tuple) else value for value in values]
