"""The hashes of the protocol."""

import hashlib

from Crypto.Hash import keccak

from wakupush.model.waku_message import WakuMessage

_KECCAK_BYTES = 32


def keccak256_public(data: bytes) -> bytes:
    """Return the Keccak-256 of `data`, 32 bytes, by an object that costs several times the hash of a message."""
    return keccak.new(data=data, digest_bytes=_KECCAK_BYTES).digest()


try:
    from Crypto.Hash.keccak import _raw_keccak_lib
    from Crypto.Util._raw_api import c_size_t, c_ubyte, create_string_buffer, get_raw_buffer

    #: As the library's function takes them: bytes of output, bytes of capacity, rounds, the first bits of the padding.
    _KECCAK_256 = (c_size_t(_KECCAK_BYTES), c_size_t(2 * _KECCAK_BYTES), c_ubyte(24), c_ubyte(0x01))
    _oneshot = _raw_keccak_lib.keccak_oneshot
except (AttributeError, ImportError):  # another pycryptodome
    keccak256 = keccak256_public
else:

    def keccak256(data: bytes) -> bytes:
        """Return the Keccak-256 of `data`, 32 bytes: the original Keccak padding, not that of SHA3-256."""
        digest = create_string_buffer(_KECCAK_BYTES)
        if error := _oneshot(data, c_size_t(len(data)), digest, *_KECCAK_256):
            raise AssertionError(f"Keccak-256 fails with {error}")
        return get_raw_buffer(digest)


def shake256_64(data: bytes) -> bytes:
    """Return the SHAKE-256 of `data` with 64 bytes of output, the only length that the protocol uses."""
    return hashlib.shake_256(data).digest(64)


def message_hash(pubsub_topic: str, message: WakuMessage) -> bytes:
    """Return the 32 byte deterministic hash of a message on a shard (14/WAKU2-MESSAGE).

    Args:
        pubsub_topic: the shard, for example ``/waku/2/rs/16/32``.
        message: its timestamp must fit an int64.
    """
    digest = hashlib.sha256()
    digest.update(pubsub_topic.encode())
    digest.update(message.payload)
    digest.update(message.content_topic.encode())
    digest.update(message.meta)
    digest.update(message.timestamp.to_bytes(8, "big", signed=True))
    return digest.digest()
