"""The hashes of the protocol."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from Crypto.Hash import keccak

if TYPE_CHECKING:
    from wakupush.model.waku_message import WakuMessage


def keccak256(data: bytes) -> bytes:
    """Return the Keccak-256 of `data`, 32 bytes: the original Keccak padding, not that of SHA3-256."""
    return keccak.new(digest_bits=256, data=data).digest()


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
