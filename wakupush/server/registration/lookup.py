"""What is stored of the installations of some registrations."""

from collections.abc import Sequence

from psycopg import Connection

from wakupush.postgres import registrations
from wakupush.server.engine.kind import Context
from wakupush.server.engine.message import Message
from wakupush.server.registration.installations import Installations
from wakupush.server.registration.read import OpenedRegistration


def measure(connection: Connection, messages: Sequence[Message], _: Context) -> Installations:
    """Read what is stored of the installations, and how many their users have."""
    installations = {
        message.content.installation for message in messages if isinstance(message.content, OpenedRegistration)
    }
    if not installations:
        return Installations()
    return Installations(
        registrations.stored(connection, installations),
        registrations.count_installations(connection, {installation.key_hash for installation in installations}),
    )
