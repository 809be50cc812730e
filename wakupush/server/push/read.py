"""Reading push requests."""

from dataclasses import dataclass
from typing import Final

from wakupush.model.registrations import Address
from wakupush.protocol import query, request
from wakupush.protocol.application import Opened
from wakupush.protocol.errors import Refused
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PublicKey
from wakupush.protocol.request import Request
from wakupush.server.engine.message import Malformed, Readable

#: Items of a push request that are looked at; clients send up to 100.
REQUEST_ITEMS: Final = 200


@dataclass(frozen=True, slots=True)
class OpenedRequest(Readable):
    """A push request."""

    sender: PublicKey
    #: The server's key that the sender knows.
    server: PublicKey
    #: Of the application message, 32 bytes.
    message_id: bytes
    request: Request
    #: For each of its items; None if the item cannot name a device.
    addresses: tuple[Address | None, ...]


def read(opened: Opened, identity: Identity) -> OpenedRequest | Malformed:
    """Parse a push request."""
    try:
        content = request.parse_request(opened.inner, most_items=REQUEST_ITEMS)
    except Refused as refused:
        return Malformed(refused.failure)
    addresses = tuple(_address(item, identity) for item in content.items)
    server = opened.recipient or identity.public_key
    return OpenedRequest(opened.signer, server, opened.message_id, content, addresses)


def _address(item: request.Item, identity: Identity) -> Address | None:
    """Return what an item names; None if it cannot name a user, which must cost nothing."""
    if len(item.key_hash) != query.KEY_HASH_BYTES:
        return None
    return identity.at_rest.address(
        identity.installation(item.key_hash, item.installation_id),
        access_token=item.access_token,
        chat_id=item.chat_id,
        author=item.author,
    )
