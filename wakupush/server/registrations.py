"""Registering and unregistering clients (71, Registering Client)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from wakupush import watched
from wakupush.events import EventKind
from wakupush.failures import Answer, Failure
from wakupush.protocol import registration as rules
from wakupush.protocol.application import Opened, Type
from wakupush.protocol.errors import Refused
from wakupush.server.limiter import FIRST_REGISTRATIONS, REPEATS
from wakupush.server.opening import open_asymmetric
from wakupush.state import query_topics, registrations
from wakupush.state.registrations import Change, Installation, Stored

if TYPE_CHECKING:
    from psycopg import Connection

    from wakupush.protocol.keys import PublicKey
    from wakupush.protocol.pb.push_notification_pb2 import PushNotificationRegistration
    from wakupush.queues import Entry
    from wakupush.server.batch import Batch
    from wakupush.server.context import Context


@dataclass(frozen=True, slots=True)
class _Asked:
    """A registration that was opened."""

    entry: Entry
    client: PublicKey
    request_id: bytes
    message: PushNotificationRegistration
    installation: Installation


def handle(batch: Batch, connection: Connection, entries: list[Entry]) -> None:
    """Handle the registrations of a batch, in their order; the caller commits."""
    key = batch.context.identity.private_key
    opened = [(entry, open_asymmetric(entry, key)) for entry in entries]
    asked = [
        registration
        for entry, message in batch.admit(connection, opened)
        if (registration := _unseal(batch, entry, message.signer, message.inner)) is not None
    ]
    if not asked:
        return
    stored = registrations.stored(connection, {each.installation for each in asked})
    counts = registrations.count_installations(connection, {each.installation.key_hash for each in asked})
    changes: dict[Installation, Change] = {}
    listening: set[bytes] = set()
    for each in asked:
        try:
            change = _decide(batch.context, each, stored.get(each.installation), counts)
        except Refused as refused:
            _refuse(batch, each, refused.failure)
            continue
        registered = isinstance(change.registration, rules.Registration) if change else _is_registered(stored, each)
        if change is not None:
            before = each.installation in stored and stored[each.installation].registered
            counts[each.installation.key_hash] = (
                counts.get(each.installation.key_hash, 0) + int(registered) - int(before)
            )
            stored[each.installation] = Stored(change.registration.version, change.request_digest, registered)
            changes[each.installation] = change
            kind = EventKind.REGISTERED if registered else EventKind.UNREGISTERED
            batch.record(each.entry, kind, platform=_platform(change), installation=each.installation)
        if registered:
            listening.add(each.installation.key_hash)
        batch.answer(
            each.entry,
            each.client,
            Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE,
            rules.encode_response(each.request_id, None),
        )
    registrations.store(connection, changes.values())
    if listening:
        # Before the answer can leave: on success the server MUST be listening, also when it answers a repeat.
        watched.add(batch.context.redis, query_topics.add(connection, listening))


def owner(context: Context, entry: Entry) -> Installation | None:
    """Return whose registration a message is, None if it is none or cannot be read."""
    identity = context.identity
    message = open_asymmetric(entry, identity.private_key)
    if not isinstance(message, Opened) or message.type != Type.PUSH_NOTIFICATION_REGISTRATION:
        return None
    try:
        content = rules.open_registration(message.inner, identity.private_key, message.signer)
    except Refused:
        return None
    return identity.installation(message.signer.key_hash, content.installation_id)


def _unseal(batch: Batch, entry: Entry, client: PublicKey, sealed: bytes) -> _Asked | None:
    request_id = rules.request_id(sealed)
    identity = batch.context.identity
    try:
        message = rules.open_registration(sealed, identity.private_key, client)
    except Refused as refused:
        failure = refused.failure
        batch.record(entry, EventKind.REFUSED, failure=failure, key_hash=client.key_hash)
        if failure.answer is not Answer.SILENCE:
            _answer_failure(batch, entry, client, request_id, failure)
        return None
    return _Asked(entry, client, request_id, message, identity.installation(client.key_hash, message.installation_id))


def _decide(context: Context, asked: _Asked, stored: Stored | None, counts: dict[bytes, int]) -> Change | None:
    """Return what is to be stored, or None for a repeat of what is stored already.

    Raises:
        Refused: see `wakupush.protocol.registration.check`, and the limits.
    """
    limits = context.settings.limits
    request_digest = context.identity.request_digest(asked.request_id)
    if stored is not None and stored.request_digest == request_digest:
        if not context.limiter.allows(REPEATS, limits.repeats_per_minute, request_digest.hex()):
            raise Refused(Failure.REPEATED_TOO_OFTEN)
        return None
    registration = rules.check(
        asked.message,
        client=asked.client,
        server=context.identity.public_key,
        stored_version=stored.version if stored else 0,
        limits=rules.Limits(
            list_items=limits.list_items, list_item_bytes=limits.list_item_bytes, text_bytes=limits.text_bytes
        ),
    )
    is_new = stored is None or not stored.registered
    is_full = counts.get(asked.installation.key_hash, 0) >= limits.installations_per_key
    if is_new and is_full and isinstance(registration, rules.Registration):
        raise Refused(Failure.INSTALLATION_LIMIT)
    if stored is None and not context.limiter.allows(FIRST_REGISTRATIONS, limits.first_registrations_per_minute):
        raise Refused(Failure.REGISTRATION_RATE_LIMIT)
    return Change(asked.installation, request_digest, registration)


def _is_registered(stored: dict[Installation, Stored], asked: _Asked) -> bool:
    return asked.installation in stored and stored[asked.installation].registered


def _platform(change: Change) -> str | None:
    if isinstance(change.registration, rules.Registration):
        return change.registration.token_type.platform
    return None


def _refuse(batch: Batch, asked: _Asked, failure: Failure) -> None:
    batch.record(asked.entry, EventKind.REFUSED, failure=failure, installation=asked.installation)
    if failure.answer is not Answer.SILENCE:
        _answer_failure(batch, asked.entry, asked.client, asked.request_id, failure)


def _answer_failure(batch: Batch, entry: Entry, client: PublicKey, request_id: bytes, failure: Failure) -> None:
    inner = rules.encode_response(request_id, failure)
    batch.answer(entry, client, Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE, inner, failure=failure)
