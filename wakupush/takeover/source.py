"""Reading a database of the reference server in batches and in constant memory.

Each batch is a separate read, by rowid, so a running server can still checkpoint its WAL. The server gives
a row that it replaces a new rowid, so no row is missed.
"""

import sqlite3
from collections.abc import Collection, Iterator
from typing import Any, Final

from wakupush.model.registrations import Change, Installation, Unregistration
from wakupush.takeover.rows import Row
from wakupush.takeover.schema import OURS, REGISTRATIONS, REQUESTS

#: Rows, and bytes of registrations, that are read at once.
BATCH: Final = 2_000
BATCH_BYTES: Final = 16_000_000
#: Lengths of request ids: the reference's, and ours, which are cut.
_REQUEST_BYTES: Final = {32, 16}

# The names in these statements are our own.
# ruff: noqa: S608
_ROWS: Final = f"""
SELECT rowid,
    typeof(public_key) || ' ' || typeof(installation_id) || ' ' || typeof(version) || ' ' || typeof(registration),
    CAST(coalesce(substr(public_key, 1, 65), '') AS BLOB), CAST(coalesce(substr(installation_id, 1, 64), '') AS BLOB),
    version,
    CASE WHEN length(registration) <= :most_bytes THEN CAST(registration AS BLOB) END
FROM {REGISTRATIONS}
WHERE rowid > :after ORDER BY rowid LIMIT {BATCH}
"""
_CROWDED_USERS: Final = f"""
SELECT public_key FROM {REGISTRATIONS} WHERE registration IS NOT NULL AND typeof(public_key) = 'blob'
GROUP BY public_key HAVING count(*) > ?
"""
_REQUESTS: Final = f"SELECT rowid, id FROM {REQUESTS} WHERE rowid > ? ORDER BY rowid LIMIT {BATCH}"
_DIGESTS: Final = ("blocked_chat_digests", "muted_chat_digests", "allowed_mentions_chat_digests")
_OURS: Final = f"""
SELECT request_digest, {", ".join(_DIGESTS)} FROM {OURS}
WHERE public_key = ? AND installation_hash = ? AND version = ? AND registered
"""
_GONE_OF: Final = f"SELECT installation_hash FROM {OURS} WHERE public_key = ? AND NOT registered"
_UNREGISTRATIONS: Final = f"""
SELECT public_key, installation_hash, version, request_digest FROM {OURS}
WHERE NOT registered AND (public_key, installation_hash) > (?, ?)
ORDER BY public_key, installation_hash LIMIT {BATCH}
"""


def rows(connection: sqlite3.Connection, *, most_bytes: int, most_installations: int) -> Iterator[list[Row]]:
    """Yield the rows of registrations in batches; larger ones than `most_bytes` come without their registration.

    One query finds the users with too many installations. A row that a running server replaces counts twice.
    """
    before = {key: 0 for (key,) in connection.execute(_CROWDED_USERS, [most_installations])}
    after = -(2**63)
    while True:
        batch, size = [], 0
        values = {"after": after, "most_bytes": most_bytes}
        for rowid, types, public_key, installation_id, version, registration in connection.execute(_ROWS, values):
            is_crowded = before.get(public_key, 0) >= most_installations
            batch.append(
                Row(
                    rowid=rowid,
                    types=types,
                    public_key=public_key,
                    installation_id=installation_id,
                    version=version,
                    registration=registration,
                    is_crowded=is_crowded,
                )
            )
            if public_key in before and not types.endswith(b" null"):
                before[public_key] += 1
            size += len(registration or b"")
            if size >= BATCH_BYTES:
                break
        if not batch:
            return
        after = batch[-1].rowid
        yield batch


def requests(connection: sqlite3.Connection) -> Iterator[tuple[list[bytes], int]]:
    """Yield ids of handled requests in batches, and how many rows of a batch are not valid ids."""
    after = -(2**63)
    while page := connection.execute(_REQUESTS, [after]).fetchall():
        after = page[-1][0]
        ids = [id_ for _, id_ in page if isinstance(id_, bytes) and len(id_) in _REQUEST_BYTES]
        yield ids, len(page) - len(ids)


def extra_columns(connection: sqlite3.Connection, changes: Collection[Change]) -> dict[Installation, dict[str, Any]]:
    """Return, for rows of an export of ours, the additional columns by name."""
    columns = {}
    for change in changes:
        place, version = change.installation, str(change.registration.version)
        row = connection.execute(_OURS, [place.key_hash, place.installation_hash, version]).fetchone()
        if row:
            columns[place] = dict(zip(("request_digest", *_DIGESTS), row, strict=True))
    return columns


def unregistrations(connection: sqlite3.Connection) -> Iterator[list[Change]]:
    """Yield the unregistrations of an export of ours in batches: their installation ids are kept as keyed hashes."""
    after = (b"", b"")
    while page := connection.execute(_UNREGISTRATIONS, after).fetchall():
        after = page[-1][0], page[-1][1]
        yield [
            Change(
                Installation(key_hash, installation_hash),
                request_digest,
                Unregistration(installation_id="", version=int(version)),
            )
            for key_hash, installation_hash, version, request_digest in page
        ]


def gone_of(connection: sqlite3.Connection, key_hash: bytes) -> set[Installation]:
    """Return the unregistered installations of a user in an export of ours."""
    return {
        Installation(key_hash, installation_hash) for (installation_hash,) in connection.execute(_GONE_OF, [key_hash])
    }
