"""Server grants (71, Server Grant): a client's permission that one server may notify it."""

from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256
from wakupush.protocol.keys import PrivateKey, PublicKey, recover


def _digest(client: PublicKey, server: PublicKey, access_token: str) -> bytes:
    return keccak256(client.compressed + server.compressed + access_token.encode())


def grant(client: PrivateKey, server: PublicKey, access_token: str) -> bytes:
    """Return the grant, a signature of 65 bytes, of a client for a server and an access token."""
    return client.sign(_digest(client.public_key, server, access_token))


def is_granted(granted: bytes, client: PublicKey, server: PublicKey, access_token: str) -> bool:
    """Return whether `granted` is the client's grant for this server and access token (case-sensitive)."""
    try:
        return recover(_digest(client, server, access_token), granted) == client
    except Refused:
        return False
