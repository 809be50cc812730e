"""secp256k1 keys: parsing, hashes, ECDH, recoverable signatures."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import coincurve
from coincurve._libsecp256k1 import ffi, lib
from coincurve.context import GLOBAL_CONTEXT

from wakupush.model.failures import Failure
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import shake256_64

#: Number of the partitions of 71/STATUS-PUSH-NOTIFICATION-SERVER's partitioned topic.
PARTITIONS = 5000

COMPRESSED_BYTES, UNCOMPRESSED_BYTES, PRIVATE_BYTES, SIGNATURE_BYTES = 33, 65, 32, 65


class InvalidKeyError(ValueError):
    """The bytes are no secp256k1 key. The text never holds them."""


class PublicKey:
    """A public key; equal keys compare and hash equal."""

    def __init__(self, data: bytes) -> None:
        """Parse a compressed (33 bytes) or uncompressed (65 bytes, ``04…``) key.

        Raises:
            InvalidKeyError: not a point of the curve in one of these two forms.
        """
        if (len(data), data[:1]) not in {(33, b"\x02"), (33, b"\x03"), (65, b"\x04")}:
            raise InvalidKeyError("a public key has 33 bytes (02…, 03…) or 65 bytes (04…)")
        try:
            self.point = coincurve.PublicKey(data)
        except ValueError:
            raise InvalidKeyError("the public key is no point of secp256k1") from None

    @classmethod
    def from_hex(cls, text: str) -> PublicKey:
        """Parse hex with or without ``0x``.

        Raises:
            InvalidKeyError: no hex, or no key.
        """
        return cls(_from_hex(text))

    @cached_property
    def uncompressed(self) -> bytes:
        """65 bytes, ``04`` first."""
        return bytes(self.point.format(compressed=False))

    @cached_property
    def compressed(self) -> bytes:
        """33 bytes."""
        return bytes(self.point.format(compressed=True))

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
        try:
            self._key = coincurve.PrivateKey(secret)
        except ValueError:
            raise InvalidKeyError("the private key is out of range") from None

    @classmethod
    def generate(cls) -> PrivateKey:
        """Return a new random key."""
        return cls(coincurve.PrivateKey().secret)

    @classmethod
    def from_hex(cls, text: str) -> PrivateKey:
        """Parse 64 hex digits, with or without ``0x`` and white space around.

        Raises:
            InvalidKeyError: no hex, or no key.
        """
        return cls(_from_hex(text.strip()))

    @property
    def secret(self) -> bytes:
        """The 32 bytes of the key."""
        return bytes(self._key.secret)

    @cached_property
    def public_key(self) -> PublicKey:
        """The public key that belongs to it."""
        return PublicKey(self._key.public_key.format(compressed=False))

    def shared_key(self, other: PublicKey) -> bytes:
        """Return the ECDH X coordinate, 32 bytes with its leading zeros, in constant time.

        Raises:
            InvalidKeyError: libsecp256k1 finds none, which no valid keys bring about.
        """
        shared = ffi.new("unsigned char[32]")
        if not lib.secp256k1_ecdh(
            GLOBAL_CONTEXT.ctx, shared, other.point.public_key, self._key.secret, _copy_x, ffi.NULL
        ):
            raise InvalidKeyError("the two keys share no secret")
        return bytes(ffi.buffer(shared, 32))

    def sign(self, digest: bytes) -> bytes:
        """Return the recoverable signature r | s | v (65 bytes, v 0 or 1, low s, RFC 6979) of a 32 byte digest."""
        return bytes(self._key.sign_recoverable(digest, hasher=None))

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
    if len(signature) != SIGNATURE_BYTES:
        raise Refused(Failure.SIGNATURE_INVALID)
    try:
        point = coincurve.PublicKey.from_signature_and_message(signature, digest, hasher=None)
    except Exception:  # noqa: BLE001 - coincurve raises bare Exception where no key can be recovered
        raise Refused(Failure.SIGNATURE_INVALID) from None
    return PublicKey(point.format(compressed=False))


# coincurve offers ECDH only with SHA-256 over it, and a multiplication in variable time, which a server's long-lived
# key must not use: so libsecp256k1's own ECDH, with a hash function that hands out the X coordinate.
@ffi.callback("int(unsigned char *, const unsigned char *, const unsigned char *, void *)")  # type: ignore[untyped-decorator]  # cffi has no types
def _copy_x(output: Any, x: Any, _y: Any, _data: Any) -> int:
    ffi.memmove(output, x, 32)
    return 1


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise InvalidKeyError("a key is written in hex digits") from None
