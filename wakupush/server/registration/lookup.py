"""What is stored of the installations of some registrations."""

from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet

from psycopg import Connection

from wakupush.postgres import registrations
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Message
from wakupush.server.registration.installations import Installations
from wakupush.server.registration.read import OpenedRegistration


def proven(connection: Connection, key_hashes: Collection[bytes]) -> AbstractSet[bytes]:
    """Return the users (key hashes of 64 bytes) among these with a device that a push once reached."""
    return registrations.count_installations(connection, key_hashes)[1]


def measure(connection: Connection, messages: Sequence[Message], _: Context) -> Installations:
    """Read what is stored of the installations, and how many their users have."""
    installations = {
        message.content.installation for message in messages if isinstance(message.content, OpenedRegistration)
    }
    if not installations:
        return Installations()
    stored = registrations.stored(connection, installations)
    key_hashes = {installation.key_hash for installation in installations}
    counts, proven = registrations.count_installations(connection, key_hashes)
    return Installations(stored, counts, proven)
