"""The two hashes of the protocol."""

from __future__ import annotations

import hashlib

from Crypto.Hash import keccak


def keccak256(data: bytes) -> bytes:
    """Return the Keccak-256 of `data`, 32 bytes: the original Keccak padding, not that of SHA3-256."""
    return keccak.new(digest_bits=256, data=data).digest()


def shake256_64(data: bytes) -> bytes:
    """Return the SHAKE-256 of `data` with 64 bytes of output, the only length that the protocol uses."""
    return hashlib.shake_256(data).digest(64)
