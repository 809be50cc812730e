"""secp256k1 keys: parsing, hashes, ECDH, recoverable signatures."""

from __future__ import annotations

import secrets
from functools import cached_property

from wakupush.model.failures import Failure
from wakupush.protocol import secp256k1
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import shake256_64
from wakupush.protocol.secp256k1_constants import PRIVATE_BYTES, Point

#: Number of the partitions of 71/STATUS-PUSH-NOTIFICATION-SERVER's partitioned topic.
PARTITIONS = 5000

#: Length and first byte of a public key.
_FORMS = {(33, b"\x02"), (33, b"\x03"), (65, b"\x04")}


class InvalidKeyError(ValueError):
    """The bytes are not a secp256k1 key. The text never holds them."""


class PublicKey:
    """A public key; equal keys compare and hash equal."""

    def __init__(self, data: bytes) -> None:
        """Parse a compressed (33 bytes) or uncompressed (65 bytes, ``04…``) key.

        Raises:
            InvalidKeyError: not a point of the curve in one of these two forms.
        """
        if (len(data), data[:1]) not in _FORMS:
            raise InvalidKeyError("a public key has 33 bytes (02…, 03…) or 65 bytes (04…)")
        point = secp256k1.parse(data)
        if point is None:
            raise InvalidKeyError("the public key is no point of secp256k1")
        self.point = point

    @classmethod
    def of(cls, point: Point) -> PublicKey:
        """Return the public key with this point."""
        key = cls.__new__(cls)
        key.point = point
        return key

    @classmethod
    def from_hex(cls, text: str) -> PublicKey:
        """Parse hex with or without ``0x``.

        Raises:
            InvalidKeyError: not hex, or not a key.
        """
        return cls(_from_hex(text))

    @cached_property
    def uncompressed(self) -> bytes:
        """65 bytes, ``04`` first."""
        return secp256k1.uncompressed(self.point)

    @cached_property
    def compressed(self) -> bytes:
        """33 bytes."""
        return secp256k1.compressed(self.point)

    @cached_property
    def key_hash(self) -> bytes:
        """SHAKE-256 of the compressed key, 64 bytes: how queries and requests name a user."""
        return shake256_64(self.compressed)

    @property
    def partition(self) -> int:
        """X mod 5000, which selects the partitioned topic."""
        return int.from_bytes(self.uncompressed[1:33], "big") % PARTITIONS

    @property
    def author_hash(self) -> bytes:
        """SHAKE-256 of the ASCII text ``0x04…``, 64 bytes: `author` of a request."""
        return shake256_64(str(self).encode())

    def __str__(self) -> str:
        """Return ``0x04…``, 132 characters."""
        return "0x" + self.uncompressed.hex()

    def __repr__(self) -> str:
        return f"PublicKey({str(self)[:14]}…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.uncompressed == other.uncompressed

    def __hash__(self) -> int:
        return hash(self.uncompressed)


class PrivateKey:
    """A private key; it is never shown."""

    def __init__(self, secret: bytes) -> None:
        """Parse 32 bytes, big endian.

        Raises:
            InvalidKeyError: not 32 bytes, zero, or not below the order of the curve.
        """
        if len(secret) != PRIVATE_BYTES:
            raise InvalidKeyError("a private key has 32 bytes")
        if not secp256k1.is_secret(secret):
            raise InvalidKeyError("the private key is out of range")
        self.secret = bytes(secret)

    @classmethod
    def generate(cls) -> PrivateKey:
        """Return a new random key."""
        while not secp256k1.is_secret(secret := secrets.token_bytes(PRIVATE_BYTES)):
            pass
        return cls(secret)

    @classmethod
    def from_hex(cls, text: str) -> PrivateKey:
        """Parse 64 hex digits, with or without ``0x`` and white space around.

        Raises:
            InvalidKeyError: not hex, or not a key.
        """
        return cls(_from_hex(text.strip()))

    @cached_property
    def public_key(self) -> PublicKey:
        """The public key that belongs to it."""
        return PublicKey.of(secp256k1.point_of(self.secret))

    def shared_key(self, other: PublicKey) -> bytes:
        """Return the ECDH X coordinate, 32 bytes with its leading zeros, in constant time.

        Raises:
            InvalidKeyError: libsecp256k1 finds no shared secret, which does not happen with valid keys.
        """
        shared_x = secp256k1.shared_x(other.point, self.secret)
        if shared_x is None:
            raise InvalidKeyError("the two keys share no secret")
        return shared_x

    def sign(self, digest: bytes) -> bytes:
        """Return the recoverable signature r | s | v (65 bytes, v 0 or 1, low s, RFC 6979) of a 32 byte digest."""
        return secp256k1.sign(digest, self.secret)

    def __repr__(self) -> str:
        return "PrivateKey(**)"


def recover(digest: bytes, signature: bytes) -> PublicKey:
    """Return the key that signed a 32 byte digest.

    Args:
        digest: 32 bytes.
        signature: r | s | v, 65 bytes, v from 0 to 3.

    Raises:
        Refused: SIGNATURE_INVALID.
    """
    point = secp256k1.recover(digest, signature)
    if point is None:
        raise Refused(Failure.SIGNATURE_INVALID)
    return PublicKey.of(point)


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise InvalidKeyError("a key is written in hex digits") from None
