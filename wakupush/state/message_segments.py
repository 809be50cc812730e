"""Parts of messages that came in segments."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from wakupush.protocol.sealing import seal, unseal
from wakupush.protocol.segments import Segment
from wakupush.state.named_sql import load

if TYPE_CHECKING:
    from collections.abc import Collection

    from psycopg import Connection

_SQL = load("message_segments")


def lock(connection: Connection, signers: Collection[bytes]) -> None:
    """Wait for whoever is adding parts of the same signers, until the transaction ends."""
    keys = sorted({int.from_bytes(blake2b(signer, digest_size=8).digest(), "big", signed=True) for signer in signers})
    connection.execute(_SQL["lock"], {"keys": keys})


def add(connection: Connection, signer: bytes, segment: Segment, key: bytes) -> tuple[int, int]:
    """Keep a part, and return how many of its message are here now, and their bytes.

    Args:
        connection: under `lock`.
        signer: compressed key of the transport layer's signer, empty if there is none.
        segment: the part.
        key: seals the parts while they are kept, 32 bytes.
    """
    message = {"signer": signer, "hash": segment.entire_message_hash}
    connection.execute(_SQL["add"], {**message, "index": segment.index, "payload": seal(key, segment.payload)})
    row = connection.execute(_SQL["kept"], message).fetchone()
    return row or (0, 0)


def parts(connection: Connection, signer: bytes, segment: Segment, key: bytes) -> list[Segment]:
    """Return all parts of a message that are here; the arguments are those of `add`."""
    return [
        Segment(segment.entire_message_hash, index, segment.count, unseal(key, sealed))
        for index, sealed in connection.execute(_SQL["parts"], {"signer": signer, "hash": segment.entire_message_hash})
    ]


def trim(connection: Connection, *, parts_per_signer: int, bytes_per_signer: int, parts: int, bytes: int) -> int:  # noqa: A002 - the unit
    """Delete the oldest parts beyond so many, of each signer and of everybody; return how many."""
    quotas = {"parts_per_signer": parts_per_signer, "bytes_per_signer": bytes_per_signer}
    return connection.execute(_SQL["trim"], {**quotas, "parts": parts, "bytes": bytes}).rowcount


def remove(connection: Connection, signer: bytes, entire_message_hash: bytes) -> None:
    """Delete the parts of a message (hash of 32 bytes)."""
    connection.execute(_SQL["remove"], {"signer": signer, "hash": entire_message_hash})


def expire(connection: Connection, keep: float) -> int:
    """Delete parts that have been waiting for the others for more than `keep` seconds; return how many."""
    return connection.execute(_SQL["expire"], {"keep": keep}).rowcount
