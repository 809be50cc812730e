"""ECIES over secp256k1 as 26/WAKU2-PAYLOAD uses it: AES-128-CTR, HMAC-SHA-256, concatenation KDF."""

import hashlib
import hmac
import secrets

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from wakupush.model.failures import Failure
from wakupush.protocol.errors import Refused
from wakupush.protocol.keys import InvalidKeyError, PrivateKey, PublicKey
from wakupush.protocol.secp256k1_constants import UNCOMPRESSED_BYTES

_IV_BYTES, _TAG_BYTES = 16, 32
#: Bytes that encryption adds: the ephemeral key, the IV and the tag.
OVERHEAD_BYTES = UNCOMPRESSED_BYTES + _IV_BYTES + _TAG_BYTES


def encrypt(plaintext: bytes, recipient: PublicKey) -> bytes:
    """Return ephemeral public key (65 bytes) | IV (16) | ciphertext | tag (32)."""
    ephemeral = PrivateKey.generate()
    encryption_key, mac_key = _derive(ephemeral.shared_key(recipient))
    iv = secrets.token_bytes(_IV_BYTES)
    body = iv + Cipher(AES(encryption_key), CTR(iv)).encryptor().update(plaintext)
    return ephemeral.public_key.uncompressed + body + hmac.digest(mac_key, body, "sha256")


def decrypt(ciphertext: bytes, private_key: PrivateKey) -> bytes:
    """Return the plaintext that was encrypted to the key.

    Raises:
        Refused: NOT_FOR_US: encrypted to another key, changed, or not ECIES at all; these look the same.
    """
    body, tag = ciphertext[UNCOMPRESSED_BYTES:-_TAG_BYTES], ciphertext[-_TAG_BYTES:]
    if len(ciphertext) < OVERHEAD_BYTES or ciphertext[0] != 4:  # noqa: PLR2004 - uncompressed
        raise Refused(Failure.NOT_FOR_US)
    try:
        ephemeral = PublicKey(ciphertext[:UNCOMPRESSED_BYTES])
    except InvalidKeyError:
        raise Refused(Failure.NOT_FOR_US) from None
    encryption_key, mac_key = _derive(private_key.shared_key(ephemeral))
    if not hmac.compare_digest(hmac.digest(mac_key, body, "sha256"), tag):
        raise Refused(Failure.NOT_FOR_US)
    return Cipher(AES(encryption_key), CTR(body[:_IV_BYTES])).decryptor().update(body[_IV_BYTES:])


def _derive(shared_key: bytes) -> tuple[bytes, bytes]:
    """Return the AES-128 key and the HMAC key (NIST SP 800-56A concatenation KDF, one round of SHA-256)."""
    digest = hashlib.sha256(b"\x00\x00\x00\x01" + shared_key).digest()
    return digest[:16], hashlib.sha256(digest[16:]).digest()
