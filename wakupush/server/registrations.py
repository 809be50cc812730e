"""Registering and unregistering clients (71, Registering Client)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush import watched
from wakupush.events import EventKind
from wakupush.failures import Answer, Failure
from wakupush.protocol import registration as rules
from wakupush.protocol.application import Opened, Type
from wakupush.protocol.errors import Refused
from wakupush.server.limiter import FIRST_REGISTRATIONS, REPEATS
from wakupush.server.opening import open_asymmetric
from wakupush.server.registering import Known, decide, unseal
from wakupush.state import query_topics, registrations

if TYPE_CHECKING:
    from psycopg import Connection

    from wakupush.protocol.keys import PublicKey
    from wakupush.queues import Entry
    from wakupush.server.batch import Batch
    from wakupush.server.context import Context
    from wakupush.server.registering import Asked
    from wakupush.state.registrations import Change, Installation


def handle(batch: Batch, connection: Connection, entries: list[Entry]) -> None:
    """Handle the registrations of a batch, in their order; the caller commits."""
    key = batch.context.identity.private_key
    opened = [(entry, open_asymmetric(entry, key)) for entry in entries]
    asked = [
        (entry, registration)
        for entry, message in batch.admit(connection, opened)
        if (registration := _unseal(batch, entry, message.signer, message.inner)) is not None
    ]
    if not asked:
        return
    known = Known(
        registrations.stored(connection, {each.installation for _, each in asked}),
        registrations.count_installations(connection, {each.installation.key_hash for _, each in asked}),
    )
    changes: dict[Installation, Change] = {}
    listening: set[bytes] = set()
    for entry, each in asked:
        try:
            change = _decide(batch, entry, each, known)
        except Refused as refused:
            _refuse(batch, entry, each, refused.failure)
            continue
        if change is not None:
            known.take(change)
            changes[each.installation] = change
            kind = EventKind.REGISTERED if known.is_registered(each.installation) else EventKind.UNREGISTERED
            batch.record(entry, kind, platform=_platform(change), installation=each.installation)
        if known.is_registered(each.installation):
            listening.add(each.installation.key_hash)
        batch.answer(
            entry,
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
        return unseal(identity, message.signer, message.inner).installation
    except Refused:
        return None


def _unseal(batch: Batch, entry: Entry, client: PublicKey, sealed: bytes) -> Asked | None:
    try:
        return unseal(batch.context.identity, client, sealed)
    except Refused as refused:
        failure = refused.failure
        batch.record(entry, EventKind.REFUSED, failure=failure, key_hash=client.key_hash)
        if failure.answer is not Answer.SILENCE:
            _answer_failure(batch, entry, client, rules.request_id(sealed), failure)
        return None


def _decide(batch: Batch, entry: Entry, asked: Asked, known: Known) -> Change | None:
    """Return what is to be stored, or None for a repeat of what is stored already.

    Raises:
        Refused: see `decide`, and the limits of how many come in a minute.
    """
    identity, limits = batch.context.identity, batch.context.settings.limits
    change = decide(identity, asked, known, limits)
    if change is None:
        digest = identity.request_digest(asked.request_id)
        if not batch.allows(entry, REPEATS, limits.repeats_per_minute, digest.hex()):
            raise Refused(Failure.REPEATED_TOO_OFTEN)
    elif asked.installation not in known.stored and not batch.allows(
        entry, FIRST_REGISTRATIONS, limits.first_registrations_per_minute
    ):
        raise Refused(Failure.REGISTRATION_RATE_LIMIT)
    return change


def _platform(change: Change) -> str | None:
    if isinstance(change.registration, rules.Registration):
        return change.registration.token_type.platform
    return None


def _refuse(batch: Batch, entry: Entry, asked: Asked, failure: Failure) -> None:
    batch.record(entry, EventKind.REFUSED, failure=failure, installation=asked.installation)
    if failure.answer is not Answer.SILENCE:
        _answer_failure(batch, entry, asked.client, asked.request_id, failure)


def _answer_failure(batch: Batch, entry: Entry, client: PublicKey, request_id: bytes, failure: Failure) -> None:
    inner = rules.encode_response(request_id, failure)
    batch.answer(entry, client, Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE, inner, failure=failure)
