"""``wakupush import reference --compare``: compares a fresh copy of the reference server's database with our rows."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

from psycopg import Connection

from wakupush.model.registrations import Change, Installation, Registration, RegistrationRow
from wakupush.postgres import takeover
from wakupush.protocol.at_rest import REQUEST_ID_BYTES
from wakupush.protocol.identity import Identity
from wakupush.protocol.registration import Limits
from wakupush.takeover import database, opening, rows, source
from wakupush.takeover.schema import REGISTRATIONS


class Difference(StrEnum):
    """How an installation of the two servers differs."""

    #: They have it, we do not.
    MISSING = "missing"
    #: We have it, they do not. Our unregistration of one that they never had is not counted as a difference.
    ONLY_HERE = "only here"
    #: Their version is higher; a run of `wakupush import reference` brings it.
    NEWER_THERE = "newer there"
    #: Our version is higher.
    NEWER_HERE = "newer here"
    #: One of the two servers has it unregistered, with the same version.
    REGISTERED = "registered or not"
    #: The version is the same, and the content differs.
    CONTENT = "content"
    #: A row of theirs that an import refuses.
    REFUSED = "refused"
    #: Only they have the id of a handled request; these are counted, not listed. Packed ones count too.
    REQUEST = "request missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferingInstallation:
    """A difference."""

    kind: Difference
    #: 64 bytes, in hex; None if it is not a valid hash.
    key_hash: str | None
    #: None if it is not known, or not a uuid.
    installation_id: str | None
    #: The differing fields, or the reason for a refusal.
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedBatch:
    """The differences of a batch."""

    #: How many of their rows the batch has; see `wakupush.takeover.database.count`.
    rows: int
    differences: list[DifferingInstallation] = field(default_factory=list)
    requests_missing: int = 0


#: Columns of a stored row that are compared as they are.
_CLEAR: Final = ("token_type", "enabled", "allow_from_contacts_only", "block_mentions")
_DIGESTS: Final = {
    "blocked_chat_list": "blocked_chat_digests",
    "muted_chat_list": "muted_chat_digests",
    "allowed_mentions_chat_list": "allowed_mentions_chat_digests",
}
_DEVICE: Final = ("device_token", "access_token", "grant", "apn_topic")
#: Reads the installation ids of a user.
_IDS: Final = f"SELECT CAST(installation_id AS BLOB) FROM {REGISTRATIONS} WHERE public_key = ?"  # noqa: S608


def differences(
    reference: sqlite3.Connection,
    connection: Connection,
    identity: Identity,
    limits: Limits,
    most_installations: int,
) -> Iterator[ComparedBatch]:
    """Yield the differences in batches: one for each batch of their rows, then those of rows that only we have.

    Raises:
        TakeoverError: another server's key sealed our rows.
    """
    is_ours = database.has_ours(reference)
    for batch in source.rows(reference, most_bytes=limits.registration_bytes, most_installations=most_installations):
        yield ComparedBatch(len(batch), list(_of_theirs(batch, reference, connection, identity, limits)))
    for changes in source.unregistrations(reference) if is_ours else ():
        yield ComparedBatch(len(changes), list(_of_changes(changes, connection, identity, {})))
    for ids, refusals in source.requests(reference):
        missing_count = len({id_[:REQUEST_ID_BYTES] for id_ in ids}) - takeover.known_requests(connection, ids)
        yield ComparedBatch(len(ids) + refusals, requests_missing=missing_count)
    with connection.transaction():
        for page in takeover.every(connection):
            yield ComparedBatch(0, list(_only_here(page, reference, identity, is_ours=is_ours)))


def _of_theirs(
    batch: Iterable[rows.Row], reference: sqlite3.Connection, connection: Connection, identity: Identity, limits: Limits
) -> Iterator[DifferingInstallation]:
    changes: list[Change] = []
    for row in batch:
        reading = rows.read(row, identity, limits)
        if reading.change is None:
            report = reading.reports[0]
            yield DifferingInstallation(
                kind=Difference.REFUSED,
                key_hash=report.key_hash,
                installation_id=report.installation_id,
                details=(report.reason,),
            )
        else:
            changes.append(reading.change)
    extra = source.extra_columns(reference, changes) if database.has_ours(reference) else {}
    yield from _of_changes(changes, connection, identity, extra)


def _of_changes(
    changes: list[Change], connection: Connection, identity: Identity, extra: Mapping[Installation, Mapping[str, Any]]
) -> Iterator[DifferingInstallation]:
    rows_here = takeover.stored_rows(connection, [change.installation for change in changes])
    for change in changes:
        place = change.installation
        difference = _compare(change, rows_here.get(place), identity, extra.get(place, {}))
        if difference:
            kind, details = difference
            yield DifferingInstallation(
                kind=kind,
                key_hash=change.installation.key_hash.hex(),
                installation_id=change.registration.installation_id or None,
                details=details,
            )


def _compare(
    change: Change, ours: RegistrationRow | None, identity: Identity, extra: Mapping[str, Any]
) -> tuple[Difference, tuple[str, ...]] | None:
    theirs = change.registration
    if ours is None:
        return Difference.MISSING, ()
    if ours.version != theirs.version:
        return (Difference.NEWER_THERE if theirs.version > ours.version else Difference.NEWER_HERE), ()
    if ours.registered != isinstance(theirs, Registration):
        return Difference.REGISTERED, ()
    names = _differing(change.installation, theirs, ours, identity, extra) if isinstance(theirs, Registration) else ()
    return (Difference.CONTENT, names) if names else None


def _differing(
    place: Installation, theirs: Registration, ours: RegistrationRow, identity: Identity, extra: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the names of the fields that differ; an export of ours has digests of lists instead of these."""
    at_rest = identity.at_rest
    device = opening.device(ours, identity)
    return (
        *(name for name in _DEVICE if getattr(theirs, name) != getattr(device, name)),
        *(name for name in _CLEAR if getattr(theirs, name) != getattr(ours, name)),
        *(("allowed_key_list",) if theirs.allowed_key_list != tuple(device.allowed_key_list) else ()),
        *(
            name
            for name, column in _DIGESTS.items()
            if (extra[column] if extra else at_rest.list_digests(place, getattr(theirs, name))) != getattr(ours, column)
        ),
    )


def _only_here(
    page: list[RegistrationRow], reference: sqlite3.Connection, identity: Identity, *, is_ours: bool
) -> Iterator[DifferingInstallation]:
    for key_hash, of_user in groupby(page, key=lambda row: row.installation.key_hash):
        # What is no text becomes a name that none of our installations has.
        names = [text.decode(errors="replace") for (text,) in reference.execute(_IDS, [key_hash])]
        theirs = {identity.installation(key_hash, name) for name in names}
        if is_ours:
            theirs |= source.gone_of(reference, key_hash)
        for row in of_user:
            if row.registered and row.installation not in theirs:
                device = opening.device(row, identity)
                yield DifferingInstallation(
                    kind=Difference.ONLY_HERE, key_hash=key_hash.hex(), installation_id=device.installation_id
                )
