"""Parts of messages that came in segments."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from wakupush.protocol.sealing import seal, unseal
from wakupush.protocol.segments import Segment
from wakupush.state.named_sql import load

if TYPE_CHECKING:
    from collections.abc import Collection

    from psycopg import Connection

_SQL = load("message_segments")


@dataclass(frozen=True, slots=True)
class Usage:
    """How much is kept, of everybody and of one signer."""

    parts: int
    #: Of payload.
    size: int
    signer_parts: int
    signer_size: int


def lock(connection: Connection, signers: Collection[bytes]) -> None:
    """Wait for whoever is adding parts of the same signers, until the transaction ends."""
    keys = sorted({int.from_bytes(blake2b(signer, digest_size=8).digest(), "big", signed=True) for signer in signers})
    connection.execute(_SQL["lock"], {"keys": keys})


def is_kept(connection: Connection, signer: bytes, segment: Segment) -> bool:
    """Say whether this part is here already."""
    part = {"signer": signer, "hash": segment.entire_message_hash, "index": segment.index}
    return connection.execute(_SQL["is_kept"], part).fetchone() is not None


def usage(connection: Connection, signer: bytes) -> Usage:
    """Return how much is kept at the moment."""
    row = connection.execute(_SQL["usage"], {"signer": signer}).fetchone()
    return Usage(*row) if row else Usage(0, 0, 0, 0)


def add(connection: Connection, signer: bytes, segment: Segment, key: bytes) -> list[Segment]:
    """Keep a part, and return all parts of its message if they are complete.

    Args:
        connection: under `lock`.
        signer: compressed key of the transport layer's signer, empty if there is none.
        segment: the part.
        key: seals the parts while they are kept, 32 bytes.
    """
    message = {"signer": signer, "hash": segment.entire_message_hash}
    connection.execute(_SQL["add"], {**message, "index": segment.index, "payload": seal(key, segment.payload)})
    row = connection.execute(_SQL["count"], message).fetchone()
    if row is None or row[0] < segment.count:
        return []
    return [
        Segment(segment.entire_message_hash, index, segment.count, unseal(key, sealed))
        for index, sealed in connection.execute(_SQL["parts"], message)
    ]


def remove(connection: Connection, signer: bytes, entire_message_hash: bytes) -> None:
    """Delete the parts of a message (hash of 32 bytes)."""
    connection.execute(_SQL["remove"], {"signer": signer, "hash": entire_message_hash})


def expire(connection: Connection, keep: float) -> int:
    """Delete parts that have been waiting for the others for more than `keep` seconds; return how many."""
    return connection.execute(_SQL["expire"], {"keep": keep}).rowcount
