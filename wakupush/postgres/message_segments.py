"""Parts of messages that came in segments.

A message in segments is named by the signer of its parts (the compressed key, empty if they are unsigned) and by its
hash (32 bytes).
"""

from collections.abc import Collection, Sequence
from hashlib import blake2b

from psycopg import Connection

from wakupush.postgres.named_sql import load
from wakupush.protocol.at_rest import AtRest
from wakupush.protocol.segments import Segment

_SQL = load("message_segments")
#: The signer of a message in segments, and its hash.
Name = tuple[bytes, bytes]


def lock(connection: Connection, names: Collection[Name], *, waits: bool) -> set[Name]:
    """Lock messages until the transaction ends, and return which it has locked.

    Args:
        waits: whether it waits for transactions that add parts of the same messages. Else it leaves these out.
    """
    name_of = {
        int.from_bytes(blake2b(signer + hash_, digest_size=8).digest(), "big", signed=True): (signer, hash_)
        for signer, hash_ in names
    }
    # In one order, so that no two transactions wait for each other.
    rows = connection.execute(_SQL["lock" if waits else "try_lock"], {"keys": sorted(name_of)})
    return set(names) if waits else {name_of[key] for (key,) in rows}


def stored(connection: Connection, names: Collection[Name]) -> dict[Name, tuple[frozenset[int], int]]:
    """Return which parts of messages are here, by their indexes, and how many bytes they are."""
    rows = connection.execute(_SQL["stored"], _columns(names))
    return {(signer, hash_): (frozenset(indexes), int(size)) for signer, hash_, indexes, size in rows}


def parts(connection: Connection, names: Collection[Name], at_rest: AtRest) -> dict[Name, dict[int, bytes]]:
    """Return the payloads of the parts that are here, by their indexes.

    Args:
        connection: under `lock`.
        at_rest: opens them.
    """
    payloads: dict[Name, dict[int, bytes]] = {}
    for signer, hash_, index, ciphertext in connection.execute(_SQL["parts"], _columns(names)):
        payloads.setdefault((signer, hash_), {})[index] = at_rest.open_part(signer, hash_, index, ciphertext)
    return payloads


def keep(connection: Connection, new_parts: Sequence[tuple[bytes, Segment]], at_rest: AtRest) -> None:
    """Keep parts.

    Args:
        connection: under `lock`.
        new_parts: signers, and the parts.
        at_rest: seals them while they are kept.
    """
    connection.execute(
        _SQL["keep"],
        {
            "signer": [signer for signer, _ in new_parts],
            "hash": [segment.entire_message_hash for _, segment in new_parts],
            "index": [segment.index for _, segment in new_parts],
            "payload": [
                at_rest.seal_part(signer, segment.entire_message_hash, segment.index, segment.payload)
                for signer, segment in new_parts
            ],
            "old_payload": [at_rest.seal_part_for_old_code(segment.payload) for _, segment in new_parts],
        },
    )


def forget(connection: Connection, names: Collection[Name]) -> None:
    """Delete the parts of messages."""
    connection.execute(_SQL["forget"], _columns(names))


def trim(connection: Connection, signers: Collection[bytes], *, parts: int, bytes: int) -> int:  # noqa: A002 - the unit
    """Delete the oldest parts of each of these signers above the limits; return how many.

    It does not read parts of other signers, so that its cost does not grow with them. It waits for nobody, and
    locks no signer: the next one deletes what others add at the same time.
    """
    return connection.execute(_SQL["trim"], {"signers": list(signers), "parts": parts, "bytes": bytes}).rowcount


def trim_all(connection: Connection, *, parts: int, bytes: int) -> int:  # noqa: A002 - the unit
    """Delete parts of all signers together above the limits; return how many. Chance decides which messages stay."""
    return connection.execute(_SQL["trim_all"], {"parts": parts, "bytes": bytes}).rowcount


def expire(connection: Connection, keep: float) -> int:
    """Delete parts that have been waiting for the others for more than `keep` seconds; return how many."""
    return connection.execute(_SQL["expire"], {"keep": keep}).rowcount


def _columns(names: Collection[Name]) -> dict[str, list[bytes]]:
    return {"signer": [signer for signer, _ in names], "hash": [hash_ for _, hash_ in names]}
