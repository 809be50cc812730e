"""The server's keys: another one for clients, and the end of those before it."""

from dataclasses import dataclass

from psycopg import Connection

from wakupush.postgres import registrations
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey, PublicKey


@dataclass(frozen=True, slots=True)
class ServerKey:
    """A key of the server, and the devices whose registrations name it."""

    #: None for keys whose private key the server does not hold any more: no query is told of their devices.
    key: PublicKey | None
    is_of_today: bool
    registered: int


def rotate(identity: Identity) -> Identity:
    """Return the identity with a new key for clients; the one of before is still heard and answered under."""
    return Identity.of(PrivateKey.generate(), previous=identity.keys, root=identity.root)


def retire(identity: Identity) -> Identity:
    """Return the identity with the key of today alone; its root stays, which what is stored is sealed by."""
    return Identity.of(identity.private_key, root=identity.root)


def keys(connection: Connection, identity: Identity) -> list[ServerKey]:
    """Return the keys that the server holds, today's first, and the lost ones that registrations name as one more.

    It reads all registrations, which takes a minute for ten million.
    """
    counts = registrations.count_by_server_key(connection)
    server_keys = [
        ServerKey(key.public_key, key is identity.private_key, counts.pop(identity.id_of(key.public_key), 0))
        for key in identity.keys
    ]
    if counts:
        server_keys.append(ServerKey(None, is_of_today=False, registered=sum(counts.values())))
    return server_keys
