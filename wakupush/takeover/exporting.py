"""``wakupush export reference``: writes our registrations as a database of the reference server, to avoid lock-in.

The reference has no place for some of what we store, and we do not store all that it has (`NOT_KEPT`). An additional
table of ours, which the reference never reads, has what an import would miss.
"""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from psycopg import Connection

from wakupush.model.registrations import RegistrationRow
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.postgres import takeover
from wakupush.protocol.identity import Identity
from wakupush.takeover import database, opening
from wakupush.takeover.errors import TakeoverError
from wakupush.takeover.schema import CREATE, IDENTITY, OURS, REGISTRATIONS, REQUESTS

#: The largest version that the reference stores.
MOST_VERSION: Final = 2**63 - 1
#: Data of clients that an export lacks, for people.
NOT_KEPT: Final = (
    "muted and blocked chats, and those whose mentions are allowed: until the device registers again",
    "unregistered installations: their ids are kept as keyed hashes",
    "ids of handled requests beyond 16 bytes: the reference pushes a recorded request once more",
    "fields that this server does not know",
)


@dataclass(slots=True)
class ExportTotals:
    """The counts of an export."""

    registered: int = 0
    #: These are in our own table only.
    unregistered: int = 0
    requests: int = 0
    #: Registrations that were left out, because the reference cannot store their versions.
    refused: int = 0


def run(
    path: Path,
    password: str | None,
    connection: Connection,
    identity: Identity,
    progress: Callable[[int], None],
    *,
    kdf_iterations: int = database.KDF_ITERATIONS,
) -> ExportTotals:
    """Write a new database, which only its owner may read, because it contains device tokens in the clear.

    Args:
        path: of a file that does not exist yet; an unfinished one is removed again.
        password: encrypts it; None for a plain one, as the daemon has it.
        connection: outside of a transaction; everything is read in one snapshot.
        identity: opens what is sealed; its private key is written, too.
        progress: called with the number of rows that are done since the last call.
        kdf_iterations: how often the password is hashed.

    Raises:
        TakeoverError: the server has earlier keys; the file is there already, or cannot be written; SQLCipher is
            missing; see `wakupush.takeover.opening`.
    """
    if identity.previous:
        raise TakeoverError("registrations may name a previous key of this server: `wakupush identity retire` it first")
    module = database.module_for(password)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise TakeoverError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with closing(database.create(path, password, kdf_iterations)) as reference:
            totals = _write(reference, connection, identity, progress)
    except (sqlite3.Error, module.Error) as error:
        _remove(path)
        raise TakeoverError(f"{path} cannot be written: {type(error).__name__}") from None
    except BaseException:
        _remove(path)
        raise
    return totals


def _remove(path: Path) -> None:
    """Remove an unfinished database and its journal, which has rows too."""
    for file in (path, path.with_name(f"{path.name}-journal")):
        with suppress(OSError):
            file.unlink()


def _write(
    reference: sqlite3.Connection, connection: Connection, identity: Identity, progress: Callable[[int], None]
) -> ExportTotals:
    totals = ExportTotals()
    reference.executescript(CREATE)
    reference.execute(f"INSERT INTO {IDENTITY} (private_key) VALUES (?)", [identity.private_key.secret])  # noqa: S608
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for page in takeover.every(connection):
            _write_rows(reference, page, identity, totals)
            progress(len(page))
        for ids in takeover.requests(connection):
            insert = f"INSERT OR IGNORE INTO {REQUESTS} VALUES (?)"  # noqa: S608 - a name of ours
            totals.requests += reference.executemany(insert, [(id_,) for id_ in ids]).rowcount
            progress(len(ids))
    reference.commit()
    return totals


def _write_rows(
    reference: sqlite3.Connection, page: list[RegistrationRow], identity: Identity, totals: ExportTotals
) -> None:
    fitting = [row for row in page if not row.registered or row.version <= MOST_VERSION]
    totals.refused += len(page) - len(fitting)
    registrations = [row for row in fitting if row.registered]
    totals.registered += len(registrations)
    totals.unregistered += len(fitting) - len(registrations)
    reference.executemany(
        f"INSERT INTO {REGISTRATIONS} VALUES (?, ?, ?, ?)",  # noqa: S608 - a name of ours
        [
            (row.installation.key_hash, message.installation_id, row.version, message.SerializeToString())
            for row in registrations
            for message in [_registration(row, identity)]
        ],
    )
    reference.executemany(
        f"INSERT INTO {OURS} VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - a name of ours
        [
            (
                row.installation.key_hash,
                row.installation.installation_hash,
                str(row.version),
                row.registered,
                row.request_digest,
                row.blocked_chat_digests,
                row.muted_chat_digests,
                row.allowed_mentions_chat_digests,
            )
            for row in fitting
        ],
    )


def _registration(row: RegistrationRow, identity: Identity) -> PushNotificationRegistration:
    message = opening.device(row, identity)
    message.version = row.version
    message.token_type = PushNotificationRegistration.TokenType.ValueType(row.token_type or 0)
    message.enabled = bool(row.enabled)
    message.allow_from_contacts_only = bool(row.allow_from_contacts_only)
    message.block_mentions = bool(row.block_mentions)
    return message
