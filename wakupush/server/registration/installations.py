"""What a registration changes: decided by workers as they arrive, and by a rebuild again."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Self

from wakupush.model.failures import Failure
from wakupush.model.registrations import Change, Installation, Stored
from wakupush.protocol import registration as rules
from wakupush.protocol.errors import Refused
from wakupush.protocol.identity import Identity
from wakupush.server.registration.read import OpenedRegistration


@dataclass(frozen=True, slots=True)
class Installations:
    """What is stored that affects some registrations, and what was decided on them so far."""

    stored: dict[Installation, Stored] = field(default_factory=dict)
    #: How many registered installations a key (hash of 64 bytes) has.
    counts: dict[bytes, int] = field(default_factory=dict)
    #: The keys with a device that a push once reached.
    proven: AbstractSet[bytes] = frozenset()

    def is_registered(self, installation: Installation) -> bool:
        """Whether an installation is registered, and not unregistered since."""
        return installation in self.stored and self.stored[installation].registered

    def is_repeat(self, content: OpenedRegistration) -> bool:
        """Whether a registration is stored already.

        If the stored device token is dead, nothing counts as a repeat: only a higher version revives the registration.
        So its client learns that it has to register anew, and a copy that somebody else sends has no effect.
        """
        row = self.stored.get(content.installation)
        return row is not None and row.request_digest == content.request_digest and not row.token_died

    def is_full(self, content: OpenedRegistration, most_installations: int) -> bool:
        """Whether the user of a registration has so many other installations that this one is too many."""
        is_new = not content.message.unregister and not self.is_registered(content.installation)
        return is_new and self.counts.get(content.installation.key_hash, 0) >= most_installations

    def take(self, installation: Installation, row: Stored) -> None:
        """Take over a row: what comes after it is decided as if it were stored."""
        gained = int(row.registered) - int(self.is_registered(installation))
        self.counts[installation.key_hash] = self.counts.get(installation.key_hash, 0) + gained
        self.stored[installation] = row

    def copy(self) -> Self:
        """Return these installations, to take over registrations without changing the original."""
        return replace(self, stored=dict(self.stored), counts=dict(self.counts))


def change_of(
    identity: Identity,
    content: OpenedRegistration,
    installations: Installations,
    *,
    most_installations: int,
    limits: rules.Limits,
) -> Change | None:
    """Return what is to be stored, or None for a repeat of what is stored already.

    Raises:
        Refused: what `wakupush.protocol.registration.check` finds, or INSTALLATION_LIMIT.
    """
    if installations.is_repeat(content):
        return None
    stored = installations.stored.get(content.installation)
    registration = rules.check(
        content.message,
        client=content.client,
        server=content.server,
        stored_version=stored.version if stored else 0,
        limits=limits,
    )
    if installations.is_full(content, most_installations):
        raise Refused(Failure.INSTALLATION_LIMIT)
    server_key = identity.id_of(content.server)
    return Change(content.installation, content.request_digest, registration, server_key=server_key)
