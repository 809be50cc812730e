"""Topic names, the content topics derived from them, and the keys of symmetric topics (71, Query Topic)."""

import re
from functools import lru_cache

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC

from wakupush.protocol.hashing import keccak256
from wakupush.protocol.keys import PARTITIONS, PublicKey

#: Rounds of PBKDF2 for a topic's key; 12 to 25 ms.
KEY_ROUNDS = 65356
#: Bytes of a topic.
TOPIC_BYTES = 4

_CONTENT_TOPIC = re.compile(r"/waku/1/0x([0-9a-f]{8})/rfc26", re.ASCII)


def personal_topic(key: PublicKey) -> str:
    """Return the name of a key's personal topic, where reference clients send registrations."""
    return f"contact-discovery-{key.uncompressed.hex()}"


def partitioned_topic(key: PublicKey) -> str:
    """Return the name of a key's partitioned topic, for requests to a server and for every answer to a client."""
    return f"contact-discovery-{key.partition}"


def query_topics(key_hash: bytes) -> tuple[str, str]:
    """Return the names of a user's query topic: as clients use it (without 0x), and as the specification writes it.

    Args:
        key_hash: SHAKE-256 of the user's compressed key, 64 bytes.
    """
    return query_topic(key_hash, prefixed=False), query_topic(key_hash, prefixed=True)


def query_topic(key_hash: bytes, *, prefixed: bool) -> str:
    """Return one name of a user's query topic: that of the specification if `prefixed`, else that of clients."""
    return f"0x{key_hash.hex()}" if prefixed else key_hash.hex()


def contact_code_topic(key: PublicKey) -> str:
    """Return the name of the topic where a user advertises its servers."""
    return f"{key}-contact-code"


def server_content_topics(server: PublicKey) -> tuple[str, str]:
    """Return the content topics of a server: its personal and its partitioned topic."""
    return content_topic(personal_topic(server)), content_topic(partitioned_topic(server))


def topic(name: str) -> bytes:
    """Return the topic of a name: the first 4 bytes of its Keccak-256. Several names can have the same."""
    return keccak256(name.encode())[:TOPIC_BYTES]


@lru_cache(maxsize=PARTITIONS)
def content_topic(name: str) -> str:
    """Return the content topic of a name, ``/waku/1/0x<8 hex>/rfc26``. Most are those of the partitions."""
    return f"/waku/1/0x{topic(name).hex()}/rfc26"


def topic_of(content_topic: str) -> bytes | None:
    """Return the 4 bytes in a content topic, or None for one of another form."""
    match = _CONTENT_TOPIC.fullmatch(content_topic)
    return bytes.fromhex(match[1]) if match else None


def symmetric_key(name: str) -> bytes:
    """Return the 32 byte key of a symmetric topic (PBKDF2-HMAC-SHA-256, empty salt). Costs 12 to 25 ms."""
    return PBKDF2HMAC(SHA256(), length=32, salt=b"", iterations=KEY_ROUNDS).derive(name.encode())
