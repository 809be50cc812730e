"""Registrations: the atomic version check, and the columns that queries, requests and deliveries need."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from psycopg import Connection

from wakupush.model.registrations import (
    AnswerSizes,
    Change,
    Installation,
    Preferences,
    QueriedDevice,
    Receiver,
    Registration,
    Stored,
    Unregistration,
)
from wakupush.postgres.named_sql import columns, load, value
from wakupush.protocol.at_rest import AtRest

_SQL = load("registrations")


class OutdatedError(Exception):
    """Another transaction has stored a newer version: decide the batch again."""


def stored(connection: Connection, installations: Collection[Installation]) -> dict[Installation, Stored]:
    """Return the stored versions of these installations, registered or not."""
    rows = connection.execute(_SQL["stored"], pairs(installations)).fetchall()
    return {
        Installation(key_hash, installation_hash): Stored(int(version), request_digest, registered, token_died)
        for key_hash, installation_hash, version, request_digest, registered, token_died in rows
    }


def count_installations(
    connection: Connection, key_hashes: Collection[bytes]
) -> tuple[dict[bytes, int], frozenset[bytes]]:
    """Return the number of registered installations of these keys, and the keys with a device that a push reached."""
    rows = connection.execute(_SQL["installations"], {"key_hashes": list(key_hashes)}).fetchall()
    return {key_hash: count for key_hash, count, _ in rows}, frozenset(
        key_hash for key_hash, _, proven in rows if proven
    )


def store(connection: Connection, changes: Iterable[Change], at_rest: AtRest) -> None:
    """Store the last of the registrations and unregistrations of each installation.

    Unregistering deletes the installation's deliveries, dead letters and quarantined messages too, whatever comes after
    it (71, Unregistering with a Server).

    Args:
        changes: in the order in which they were decided.
        at_rest: seals their secret fields.

    Raises:
        OutdatedError: one of them is not newer than what is stored by now.
    """
    changes = list(changes)
    last = {change.installation: change for change in changes}.values()
    puts = [
        row(change, change.registration, at_rest) for change in last if isinstance(change.registration, Registration)
    ]
    unregisters = [key(change) for change in last if isinstance(change.registration, Unregistration)]
    if puts and connection.execute(_SQL["put"], columns(puts)).rowcount != len(puts):
        raise OutdatedError
    if unregisters and connection.execute(_SQL["unregister"], columns(unregisters)).rowcount != len(unregisters):
        raise OutdatedError
    unregistrations = [key(change) for change in changes if isinstance(change.registration, Unregistration)]
    if unregistrations:
        connection.execute(_SQL["forget_deliveries"], columns(unregistrations))
        connection.execute(_SQL["forget_quarantine"], columns(unregistrations))


def unregister_dead(connection: Connection, *, seconds: float, most: int) -> int:
    """Unregister installations whose device token died longer ago than this many seconds; return how many.

    Key hash and version stay, and no sealed registration counts as a repeat of theirs any more: only a higher version
    brings them back. It skips rows that another transaction is changing.

    Args:
        connection: in a transaction of its own.
        seconds: since the token died.
    """
    return int(value(connection, _SQL["unregister_dead"], {"seconds": seconds, "most": most}))


def answer_sizes(connection: Connection, key_hashes: Collection[bytes]) -> AnswerSizes:
    """Return, for each of these users with devices, how many bytes `devices` returns at most, and who are proven."""
    rows = connection.execute(_SQL["answer_bytes"], {"key_hashes": list(key_hashes)}).fetchall()
    return AnswerSizes(
        {key_hash: int(size) for key_hash, size, _ in rows},
        frozenset(key_hash for key_hash, _, proven in rows if proven),
    )


def devices(connection: Connection, key_hashes: Collection[bytes], at_rest: AtRest) -> dict[bytes, list[QueriedDevice]]:
    """Return the registered devices of these users whose device tokens are alive.

    The list of a device that does not give its token to contacts only is left out.
    """
    rows = connection.execute(_SQL["devices"], {"key_hashes": list(key_hashes)})
    by_key: dict[bytes, list[QueriedDevice]] = {}
    for device in sorted((_device(at_rest, *row) for row in rows), key=attrgetter("key_hash", "installation_id")):
        by_key.setdefault(device.key_hash, []).append(device)
    return by_key


def receiver(row: dict[str, Any], installation: Installation, at_rest: AtRest) -> Receiver:
    """Return a device that a notification is for; the row has no sealed device if the access token is wrong."""
    preferences = Preferences(
        token_fits=row["token_fits"],
        token_died=row["token_died"],
        enabled=row["enabled"],
        block_mentions=row["block_mentions"],
        author_blocked=bool(row["author_blocked"]),
        chat_blocked=bool(row["chat_blocked"]),
        chat_muted=bool(row["chat_muted"]),
        mention_allowed=bool(row["mention_allowed"]),
    )
    target = None
    if row["sealed_device"] is not None:
        target = at_rest.target(
            installation,
            int(row["version"]),
            row["sealed_device"],
            row["token_type"],
            suspected=row["suspected"],
            proven=row["proven"],
        )
    return Receiver(preferences, target, row["contacts_only"])


def count_by_server_key(connection: Connection) -> dict[bytes | None, int]:
    """Return how many installations are registered under each of the server's keys, by its id; all are read."""
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        return dict(connection.execute(_SQL["server_keys"]).fetchall())


def lock(connection: Connection, installations: Collection[Installation]) -> None:
    """Lock devices whose tokens are to be judged, always in the same order, and before their deliveries."""
    if installations:
        connection.execute(_SQL["lock"], pairs(installations))


def token_died(connection: Connection, dead: Collection[tuple[Installation, int]]) -> set[Installation]:
    """Remember that the device tokens of these versions are gone; return the installations that were not marked yet."""
    rows = [{**asdict(installation), "version": version} for installation, version in dead]
    return {Installation(*row) for row in connection.execute(_SQL["token_died"], columns(rows))} if rows else set()


def suspect(
    connection: Connection, doubts: Mapping[tuple[Installation, int], tuple[str, int]], *, seconds: float
) -> dict[Installation, int]:
    """Remember how often the device tokens of these versions were doubted; return how often, within so many seconds.

    A token that no push ever reached collects doubts only while its app and platform take others.

    Args:
        doubts: the app and the number of doubts, by installation and version.
    """
    rows = [
        {**asdict(installation), "version": version, "app": app, "times": times}
        for (installation, version), (app, times) in doubts.items()
    ]
    if not rows:
        return {}
    counts = connection.execute(_SQL["suspect"], {**columns(rows), "seconds": seconds})
    return {Installation(*installation): count for *installation, count in counts}


def prove(connection: Connection, proven: Collection[tuple[Installation, int]]) -> None:
    """Remember that a push to the device tokens of these versions got through, and forget doubts about them."""
    rows = [{**asdict(installation), "version": version} for installation, version in proven]
    if rows:
        connection.execute(_SQL["prove"], columns(rows))


def pairs(installations: Iterable[Installation]) -> dict[str, Any]:
    """Return installations as statements take them: a list for each of the two parts of their names."""
    return {
        "key_hashes": [installation.key_hash for installation in installations],
        "installation_hashes": [installation.installation_hash for installation in installations],
    }


def _device(at_rest: AtRest, *row: Any) -> QueriedDevice:
    key_hash, installation_hash, server_key, numeric, contacts_only, sealed_device, sealed_allowed_keys = row
    installation = Installation(key_hash, installation_hash)
    version = int(numeric)
    device = at_rest.open_device(installation, version, sealed_device)
    return QueriedDevice(
        key_hash=key_hash,
        server_key=server_key,
        installation_id=device.installation_id,
        version=version,
        access_token=device.access_token,
        grant=device.grant,
        allow_from_contacts_only=contacts_only,
        allowed_key_list=at_rest.open_allowed_key_list(installation, version, sealed_allowed_keys)
        if sealed_allowed_keys
        else (),
    )


def row(change: Change, registration: Registration, at_rest: AtRest) -> dict[str, Any]:
    """Return the row of a change, by the names of its columns."""
    return {
        **key(change),
        "server_key": change.server_key,
        "token_type": registration.token_type,
        "enabled": registration.enabled,
        "allow_from_contacts_only": registration.allow_from_contacts_only,
        "block_mentions": registration.block_mentions,
        **at_rest.columns(change.installation, registration),
        "device_digest": at_rest.device(change.installation, registration),
    }


def key(change: Change) -> dict[str, Any]:
    """Return the columns that registrations and unregistrations have, by their names."""
    return {
        "key_hash": change.installation.key_hash,
        "installation_hash": change.installation.installation_hash,
        "app": change.app,
        "version": change.registration.version,
        "request_digest": change.request_digest,
    }
