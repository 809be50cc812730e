"""Reading queries."""

from dataclasses import dataclass
from typing import Final

from wakupush.protocol import query
from wakupush.protocol.application import Opened
from wakupush.protocol.errors import Refused
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PublicKey
from wakupush.server.engine.message import Malformed, Readable

#: Keys in a query at most; clients ask for up to 1,000 contacts at once.
QUERY_KEYS: Final = 1000


@dataclass(frozen=True, slots=True)
class OpenedQuery(Readable):
    """A query."""

    sender: PublicKey
    #: Of the application message, 32 bytes.
    message_id: bytes
    #: Of the users that it asks for, 64 bytes each.
    key_hashes: tuple[bytes, ...]


def read(opened: Opened, _: Identity) -> OpenedQuery | Malformed:
    """Parse a query."""
    try:
        key_hashes = query.parse_query(opened.inner, most_keys=QUERY_KEYS)
    except Refused as refused:
        return Malformed(refused.failure)
    return OpenedQuery(opened.signer, opened.message_id, key_hashes)
