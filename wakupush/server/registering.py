"""Deciding on registrations: what workers do as they arrive, and a rebuild does again out of the archive.

Nothing here looks at a clock, a socket or a database: the same registrations in the same order come to the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from wakupush.failures import Failure
from wakupush.protocol import registration as rules
from wakupush.protocol.errors import Refused
from wakupush.state.registrations import Change, Stored

if TYPE_CHECKING:
    from wakupush.protocol.keys import PublicKey
    from wakupush.protocol.pb.push_notification_pb2 import PushNotificationRegistration
    from wakupush.server.identity import Identity
    from wakupush.settings import LimitSettings
    from wakupush.state.registrations import Installation


@dataclass(frozen=True, slots=True)
class Asked:
    """A registration that was opened."""

    client: PublicKey
    request_id: bytes
    message: PushNotificationRegistration = field(repr=False)
    installation: Installation


@dataclass(frozen=True, slots=True)
class Known:
    """What is stored, as far as it bears on some registrations, and what was decided on them so far."""

    stored: dict[Installation, Stored] = field(default_factory=dict)
    #: How many registered installations a key (hash of 64 bytes) has.
    counts: dict[bytes, int] = field(default_factory=dict)

    def is_registered(self, installation: Installation) -> bool:
        """Say whether an installation is registered, and not unregistered since."""
        return installation in self.stored and self.stored[installation].registered

    def take(self, change: Change) -> None:
        """Take over a change: what comes after it is decided as if it were stored."""
        registered = isinstance(change.registration, rules.Registration)
        key_hash = change.installation.key_hash
        gained = int(registered) - int(self.is_registered(change.installation))
        self.counts[key_hash] = self.counts.get(key_hash, 0) + gained
        self.stored[change.installation] = Stored(change.registration.version, change.request_digest, registered)


def unseal(identity: Identity, client: PublicKey, sealed: bytes) -> Asked:
    """Open what a client sealed for the server.

    Raises:
        Refused: see `wakupush.protocol.registration.open_registration`.
    """
    message = rules.open_registration(sealed, identity.private_key, client)
    installation = identity.installation(client.key_hash, message.installation_id)
    return Asked(client, rules.request_id(sealed), message, installation)


def decide(identity: Identity, asked: Asked, known: Known, limits: LimitSettings) -> Change | None:
    """Return what is to be stored, or None for a repeat of what is stored already.

    Raises:
        Refused: see `wakupush.protocol.registration.check`, and INSTALLATION_LIMIT.
    """
    stored = known.stored.get(asked.installation)
    request_digest = identity.request_digest(asked.request_id)
    if stored is not None and stored.request_digest == request_digest:
        return None
    registration = rules.check(
        asked.message,
        client=asked.client,
        server=identity.public_key,
        stored_version=stored.version if stored else 0,
        limits=rules.Limits(
            list_items=limits.list_items,
            list_item_bytes=limits.list_item_bytes,
            text_bytes=limits.text_bytes,
            registration_bytes=limits.registration_bytes,
        ),
    )
    is_new = not known.is_registered(asked.installation)
    is_full = known.counts.get(asked.installation.key_hash, 0) >= limits.installations_per_key
    if is_new and is_full and isinstance(registration, rules.Registration):
        raise Refused(Failure.INSTALLATION_LIMIT)
    return Change(asked.installation, request_digest, registration)
