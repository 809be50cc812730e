"""Deciding whether a row of the reference's table is taken or refused, without a database. A bad row ends no run.

The reference checks less than this server does. An import accepts faults that the specification tolerates, as the
device could not know that its registration is gone. A fault that the specification refuses is not. Both are reported.
"""

from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from wakupush.model.failures import Failure
from wakupush.model.registrations import Change, Installation, Unregistration
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol import registration as rules
from wakupush.protocol.identity import Identity
from wakupush.protocol.query import KEY_HASH_BYTES
from wakupush.protocol.uuids import is_uuid

#: SQLite's types of the columns, as the reference writes them: registered, and unregistered.
_TYPES: Final = {b"blob text integer blob", b"blob text integer null"}

#: A row of other types, or of other lengths, than the reference writes.
STRANGE: Final = "strange_row"
#: The registration in the row has another version or installation id than the row, or unregisters.
CONTRADICTION: Final = "contradiction"
#: The registration has fields that this server does not know, and does not keep.
UNKNOWN_FIELDS: Final = "unknown_fields"
#: Its user has `WAKUPUSH_LIMITS__INSTALLATIONS_PER_KEY` installations already.
CROWDED: Final = Failure.INSTALLATION_LIMIT.label
#: Postgres cannot hold it.
NOT_STORABLE: Final = Failure.QUARANTINED.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of `wakupush.takeover.schema.REGISTRATIONS`, texts as bytes."""

    rowid: int
    #: The types of the four columns, by SQLite's names.
    types: bytes
    public_key: bytes
    installation_id: bytes
    version: int
    #: None if it is unregistered, or too large to be read.
    registration: bytes | None = field(repr=False)
    #: Whether its user has as many installations as a user may have, in rows before it.
    is_crowded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReport:
    """A report to the operator about a row."""

    rowid: int
    #: 64 bytes, in hex; None if it is not a valid hash.
    key_hash: str | None
    #: None if it is not a uuid: then it can be anything.
    installation_id: str | None
    reason: str
    taken: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """The decision on a row."""

    #: None if the row is refused.
    change: Change | None
    reports: tuple[RowReport, ...] = ()


def read(row: Row, identity: Identity, limits: rules.Limits) -> Reading:
    """Return the change to store for a row, and the reports about it. The change has no request digest."""
    if row.types not in _TYPES or len(row.public_key) != KEY_HASH_BYTES:
        return _refusal(row, STRANGE)
    if not row.version > 0:
        return _refusal(row, Failure.VERSION_ZERO.label)
    name = installation_id_of(row)
    if name is None:
        return _refusal(row, Failure.INSTALLATION_ID_INVALID.label)
    installation = identity.installation(row.public_key, name)
    if row.types.endswith(b"null"):
        unregistration = Unregistration(installation_id=name, version=row.version)
        return Reading(Change(installation, b"", unregistration))
    server_key = identity.id_of(identity.public_key)
    return _read_registered(row, name, installation, server_key, limits)


def installation_id_of(row: Row) -> str | None:
    """Return the installation id of a row; None if it is not valid."""
    try:
        text = row.installation_id.decode()
    except UnicodeDecodeError:
        return None
    return text if is_uuid(text) and "\0" not in text else None


def _read_registered(
    row: Row, name: str, installation: Installation, server_key: bytes | None, limits: rules.Limits
) -> Reading:
    if row.registration is None:
        return _refusal(row, Failure.REGISTRATION_TOO_LARGE.label)
    try:
        message = PushNotificationRegistration.FromString(row.registration)
    except DecodeError:
        return _refusal(row, Failure.REGISTRATION_MALFORMED.label)
    if message.unregister or (message.installation_id, message.version) != (name, row.version):
        return _refusal(row, CONTRADICTION)
    faults = list(rules.faults(message, limits))
    if refusals := [fault for fault in faults if not _is_tolerated(fault, message)]:
        return _refusal(row, refusals[0].label)
    reasons = [fault.label for fault in faults]
    if len(UnknownFieldSet(message)):
        reasons.append(UNKNOWN_FIELDS)
    if row.is_crowded:
        reasons.append(CROWDED)
    reports = tuple(report(row, reason, is_taken=True) for reason in reasons)
    return Reading(Change(installation, b"", rules.of(message), server_key=server_key), reports)


def _is_tolerated(fault: Failure, message: PushNotificationRegistration) -> bool:
    """Return whether to take a registration in spite of a fault: without a topic its device is reached as before."""
    return fault is Failure.APN_TOPIC_INVALID and not message.apn_topic


def _refusal(row: Row, reason: str) -> Reading:
    return Reading(None, (report(row, reason, is_taken=False),))


def report(row: Row, reason: str, *, is_taken: bool) -> RowReport:
    """Return a report about a row."""
    is_hash = row.types.startswith(b"blob") and len(row.public_key) == KEY_HASH_BYTES
    return RowReport(
        rowid=row.rowid,
        key_hash=row.public_key.hex() if is_hash else None,
        installation_id=installation_id_of(row) if b" text " in row.types else None,
        reason=reason,
        taken=is_taken,
    )
