"""Reading registrations, and unregistrations."""

from dataclasses import dataclass, field

from wakupush.model.failures import Failure
from wakupush.model.registrations import Installation
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol import registration
from wakupush.protocol.application import Opened
from wakupush.protocol.errors import Refused
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PublicKey
from wakupush.server.engine.message import Readable


@dataclass(frozen=True, slots=True)
class OpenedRegistration(Readable):
    """A registration, as its client sealed it for the server."""

    client: PublicKey
    #: The server's key that the client knows.
    server: PublicKey
    #: 64 bytes.
    request_id: bytes
    #: Keyed digest of `request_id`, 16 bytes.
    request_digest: bytes
    message: PushNotificationRegistration = field(repr=False)
    installation: Installation
    #: Whether nothing is wrong with it, as far as one can tell without its grant and what is stored.
    is_plausible: bool


@dataclass(frozen=True, slots=True)
class RefusedRegistration(Readable):
    """A registration that cannot be opened or read."""

    client: PublicKey
    #: The server's key that the client knows.
    server: PublicKey
    #: 64 bytes.
    request_id: bytes
    failure: Failure


def read(opened: Opened, identity: Identity) -> OpenedRegistration | RefusedRegistration:
    """Open what a client sealed for the server."""
    server = opened.recipient or identity.public_key
    try:
        return open_registration(
            identity, opened.signer, server, opened.inner, most_bytes=registration.LIMITS.registration_bytes
        )
    except Refused as refused:
        return RefusedRegistration(opened.signer, server, registration.request_id(opened.inner), refused.failure)


def open_registration(
    identity: Identity, client: PublicKey, server: PublicKey, sealed: bytes, *, most_bytes: int
) -> OpenedRegistration:
    """Open what a client sealed for one of the server's keys.

    Raises:
        Refused: it cannot be opened, is too large, or is not protobuf.
        KeyError: the server does not hold this key.
    """
    message = registration.open_registration(sealed, identity.key_of(server), client, most_bytes=most_bytes)
    request_id = registration.request_id(sealed)
    return OpenedRegistration(
        client,
        server,
        request_id,
        identity.request_digest(request_id),
        message,
        identity.installation(client.key_hash, message.installation_id),
        registration.is_plausible(message, limits=registration.LIMITS),
    )


def owner(content: Readable) -> Installation | None:
    """Return the installation of a registration that could be opened."""
    return content.installation if isinstance(content, OpenedRegistration) else None
