"""AES-256-GCM with the nonce in front: sealed registrations and the items of an allowed_key_list."""

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
#: Bytes that sealing adds: the nonce, and the tag of AES-GCM.
SEAL_BYTES = NONCE_BYTES + 16


class UnsealableError(ValueError):
    """The bytes were not sealed with this key, or were changed since."""


def seal(key: bytes, plaintext: bytes, nonce: bytes | None = None) -> bytes:
    """Return nonce (12 bytes) | ciphertext | tag (16 bytes).

    Args:
        key: 32 bytes, for example an ECDH X coordinate.
        nonce: 12 bytes, to make known vectors again; random unless given.
    """
    nonce = secrets.token_bytes(NONCE_BYTES) if nonce is None else nonce
    return nonce + AESGCM(key).encrypt(nonce, plaintext, None)


def unseal(key: bytes, ciphertext: bytes) -> bytes:
    """Return the plaintext of `seal`.

    Raises:
        UnsealableError: another key, changed, or too short.
    """
    try:
        return AESGCM(key).decrypt(ciphertext[:NONCE_BYTES], ciphertext[NONCE_BYTES:], None)
    except (InvalidTag, ValueError):
        raise UnsealableError("not sealed with this key") from None
