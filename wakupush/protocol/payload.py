"""26/WAKU2-PAYLOAD version 1: flags | size | data | padding | signature, encrypted to a key or with a shared one."""

import secrets
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from wakupush.model.failures import Failure
from wakupush.protocol import ecies
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256
from wakupush.protocol.keys import PrivateKey, PublicKey, recover
from wakupush.protocol.sealing import NONCE_BYTES, SEAL_BYTES
from wakupush.protocol.secp256k1 import is_recoverable
from wakupush.protocol.secp256k1_constants import SIGNATURE_BYTES

#: The WakuMessage version that says that its payload is encrypted in this way.
VERSION = 1
#: Encoded payloads, without encryption, have a multiple of this length.
PADDED_TO = 256

#: The least bytes of a sealed payload, as all implementations pad: encrypted to a key, and with a shared key.
LEAST_ASYMMETRIC = ecies.OVERHEAD_BYTES + PADDED_TO
LEAST_SYMMETRIC = SEAL_BYTES + PADDED_TO

_SIZE_MASK, _SIGNATURE_FLAG = 0b011, 0b100


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature from which a key can most likely be recovered; see `secp256k1.is_recoverable`."""

    signed: bytes = field(repr=False)
    #: r | s | v, 65 bytes.
    value: bytes = field(repr=False)

    def signer(self) -> PublicKey:
        """Return the key that made it; recovering it costs as much as opening a payload.

        Raises:
            Refused: SIGNATURE_INVALID: its maker chose it so that no key can be recovered.
        """
        return recover(keccak256(self.signed), self.value)


@dataclass(frozen=True, slots=True)
class Payload:
    """The content of a decrypted payload."""

    data: bytes = field(repr=False)
    #: Of this layer; the signer's key if it is known, None if the layer is unsigned.
    signature: Signature | PublicKey | None
    padding: bytes = field(repr=False, default=b"")

    @property
    def signer(self) -> PublicKey | None:
        """The key that signed this layer, None if it is unsigned; see `Signature.signer`.

        The server asks for it only if nothing else names the sender: messages are signed once more inside.
        """
        return self.signature.signer() if isinstance(self.signature, Signature) else self.signature


def encode(data: bytes, sign_with: PrivateKey | None = None) -> bytes:
    """Return the encoded payload, a multiple of 256 bytes, with 1 to 256 random bytes of padding.

    Raises:
        ValueError: more than 2^24 - 1 bytes of data.
    """
    size_bytes = max(1, (len(data).bit_length() + 7) // 8)
    if size_bytes > _SIZE_MASK:
        raise ValueError("a payload holds less than 16 MiB")
    has_signature = sign_with is not None
    head = bytes([size_bytes | (_SIGNATURE_FLAG if has_signature else 0)]) + len(data).to_bytes(size_bytes, "little")
    length = len(head) + len(data) + (SIGNATURE_BYTES if has_signature else 0)
    plaintext = head + data + secrets.token_bytes(PADDED_TO - length % PADDED_TO)
    return plaintext + sign_with.sign(keccak256(plaintext)) if sign_with is not None else plaintext


def decode(plaintext: bytes) -> Payload:
    """Return the content of an encoded payload.

    Raises:
        Refused: PAYLOAD_MALFORMED, or SIGNATURE_INVALID if the layer says that it is signed.
    """
    end, signature = len(plaintext), None
    if end < 1:
        raise Refused(Failure.PAYLOAD_MALFORMED)
    if plaintext[0] & _SIGNATURE_FLAG:
        end -= SIGNATURE_BYTES
        if end <= 1:
            raise Refused(Failure.PAYLOAD_MALFORMED)
        signature = Signature(plaintext[:end], plaintext[end:])
        if not is_recoverable(signature.value):
            raise Refused(Failure.SIGNATURE_INVALID)
    start = 1 + (plaintext[0] & _SIZE_MASK)
    stop = start + int.from_bytes(plaintext[1:start], "little")
    if stop > end:
        raise Refused(Failure.PAYLOAD_MALFORMED)
    return Payload(plaintext[start:stop], signature, plaintext[stop:end])


def seal_asymmetric(data: bytes, recipient: PublicKey, sign_with: PrivateKey | None = None) -> bytes:
    """Return the WakuMessage payload of `data`, encrypted to `recipient`.

    Clients of the reference drop messages that are not signed at this layer.
    """
    return ecies.encrypt(encode(data, sign_with), recipient)


def open_asymmetric(payload: bytes, private_key: PrivateKey) -> Payload:
    """Open a WakuMessage payload that was encrypted to a key.

    Raises:
        Refused: NOT_FOR_US, PAYLOAD_MALFORMED or SIGNATURE_INVALID.
    """
    return decode(ecies.decrypt(payload, private_key))


def seal_symmetric(data: bytes, key: bytes, sign_with: PrivateKey | None = None) -> bytes:
    """Return the WakuMessage payload of `data` under a topic's key: ciphertext | tag | nonce (12 bytes).

    Args:
        data: less than 16 MiB.
        key: 32 bytes, see `topics.symmetric_key`.
        sign_with: the signer of this layer.
    """
    nonce = secrets.token_bytes(NONCE_BYTES)
    return AESGCM(key).encrypt(nonce, encode(data, sign_with), None) + nonce


def open_symmetric(payload: bytes, key: bytes) -> Payload:
    """Open a WakuMessage payload that was encrypted with a topic's key (32 bytes).

    Raises:
        Refused: NOT_FOR_US, PAYLOAD_MALFORMED or SIGNATURE_INVALID.
    """
    try:
        plaintext = AESGCM(key).decrypt(payload[-NONCE_BYTES:], payload[:-NONCE_BYTES], None)
    except (InvalidTag, ValueError):
        raise Refused(Failure.NOT_FOR_US) from None
    return decode(plaintext)
