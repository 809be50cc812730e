"""Registrations: the atomic version check, and what queries, requests and deliveries need to know of a device."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from psycopg.rows import dict_row

from wakupush.model.registrations import (
    Change,
    Device,
    Installation,
    Registration,
    Stored,
    Unregistration,
)
from wakupush.postgres.named_sql import bytea_array, columns, load

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from psycopg import Connection

_SQL = load("registrations")


class OutdatedError(Exception):
    """Somebody else stored a newer version meanwhile: the batch is to be decided again."""


def stored(connection: Connection, installations: Collection[Installation]) -> dict[Installation, Stored]:
    """Return what is stored of these installations, registered or not."""
    rows = connection.execute(_SQL["stored"], _pairs(installations)).fetchall()
    return {
        Installation(key_hash, installation_hash): Stored(int(version), request_digest, registered)
        for key_hash, installation_hash, version, request_digest, registered in rows
    }


def count_installations(connection: Connection, key_hashes: Collection[bytes]) -> dict[bytes, int]:
    """Return the number of registered installations of these keys."""
    return dict(connection.execute(_SQL["installations"], {"key_hashes": list(key_hashes)}).fetchall())


def store(connection: Connection, changes: Iterable[Change]) -> None:
    """Store the last of the registrations and unregistrations of each installation.

    Unregistering deletes the installation's deliveries, dead letters and quarantined messages too, whatever comes after
    it (71, Unregistering with a Server).

    Args:
        connection: in a transaction.
        changes: in the order in which they were decided.

    Raises:
        OutdatedError: one of them is not newer than what is stored by now.
    """
    changes = list(changes)
    last = {change.installation: change for change in changes}.values()
    puts = [_row(change) for change in last if isinstance(change.registration, Registration)]
    unregisters = [_row(change) for change in last if isinstance(change.registration, Unregistration)]
    for query, rows in ((_SQL["put"], puts), (_SQL["unregister"], unregisters)):
        if rows and connection.execute(query, columns(rows)).rowcount != len(rows):
            raise OutdatedError
    gone = [_row(change) for change in changes if isinstance(change.registration, Unregistration)]
    for query in (_SQL["forget_deliveries"], _SQL["forget_quarantine"]):
        if gone:
            connection.execute(query, columns(gone))


def answer_bytes(connection: Connection, key_hashes: Collection[bytes]) -> dict[bytes, int]:
    """Return how many bytes `devices` has at most of each of these users of whom it has any."""
    rows = connection.execute(_SQL["answer_bytes"], {"key_hashes": list(key_hashes)}).fetchall()
    return {key_hash: int(size) for key_hash, size in rows}


def devices(connection: Connection, key_hashes: Collection[bytes]) -> dict[bytes, list[Device]]:
    """Return the registered devices of these users, as far as their device tokens are alive.

    The lists of those that do not ask for them are left out.
    """
    found: dict[bytes, list[Device]] = {}
    with connection.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(_SQL["devices"], {"key_hashes": list(key_hashes)}):
            row["version"] = int(row["version"])
            row["allowed_key_list"] = tuple(row["allowed_key_list"])
            found.setdefault(row["key_hash"], []).append(Device(**row))
    return found


def token_died(connection: Connection, installation: Installation, version: int) -> bool:
    """Remember that the device token of this version is gone; say whether that is news."""
    return bool(connection.execute(_SQL["token_died"], {**asdict(installation), "version": version}).rowcount)


def suspect(connection: Connection, installation: Installation, version: int, *, seconds: float) -> int:
    """Remember that the device token of this version was doubted; return how often, within so many seconds."""
    row = connection.execute(
        _SQL["suspect"], {**asdict(installation), "version": version, "seconds": seconds}
    ).fetchone()
    return row[0] if row else 0


def clear_suspicions(connection: Connection, proven: Collection[tuple[Installation, int]]) -> None:
    """Forget that the device tokens of these versions were doubted: a push got through."""
    rows = [{**asdict(installation), "version": version} for installation, version in proven]
    if rows:
        connection.execute(_SQL["clear_suspicions"], columns(rows))


def _pairs(installations: Iterable[Installation]) -> dict[str, Any]:
    return {
        "key_hashes": [installation.key_hash for installation in installations],
        "installation_hashes": [installation.installation_hash for installation in installations],
    }


def _row(change: Change) -> dict[str, Any]:
    row = asdict(change.registration) | asdict(change.installation) | {"request_digest": change.request_digest}
    return {name: bytea_array(value) if isinstance(value, tuple) else value for name, value in row.items()}
