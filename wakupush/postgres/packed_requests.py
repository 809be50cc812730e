"""Ids of push requests that were admitted long ago, packed: a repeat of them must not push again.

An id becomes a keyed digest. Its first bits choose a row of the month, the next 48 are kept in it: an id takes about 7
bytes, where a row of its own takes 113.
"""

from __future__ import annotations

import math
from array import array
from itertools import groupby
from typing import TYPE_CHECKING, Final

from wakupush.postgres.named_sql import load

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from datetime import date, datetime

    from psycopg import Connection

    from wakupush.protocol.at_rest import AtRest

_SQL = load("packed_requests")
#: Key of the advisory lock that lets one worker pack at a time ("requests" in ASCII).
_LOCK: Final = {"lock": 0x7265717565737473}
#: Bytes of a digest in its row.
KEPT_BYTES: Final = 6
#: Bits of a prefix at most: together with what is kept it has the 64 of a digest.
MOST_PREFIX_BITS: Final = 16
#: The least number of digests that a row should have.
ROW_DIGESTS: Final = 128
#: Rows that are read and written at once.
CHUNK_ROWS: Final = 1000


def are_due(connection: Connection, keep: float) -> bool:
    """Say whether there are ids that were admitted more than `keep` seconds ago."""
    row = connection.execute(_SQL["due"], {"keep": keep}).fetchone()
    return bool(row and row[0])


def pack(connection: Connection, at_rest: AtRest, *, keep: float, most: int) -> int:
    """Pack the oldest ids, all of one month, and return how many; 0 if another worker is packing.

    Args:
        connection: in a transaction of its own.
        at_rest: makes the digests.
        keep: seconds for which ids have rows of their own.
        most: ids, about.
    """
    locked = connection.execute(_SQL["lock"], _LOCK).fetchone()
    if not locked or not locked[0]:
        return 0
    row = connection.execute(_SQL["until"], {"keep": keep, "most": most}).fetchone()
    if row is None or row[0] is None:
        return 0
    month, until, count = row
    bits = _prefix_bits(connection, month, count)
    for prefixes in _chunks(_digests(connection, until, at_rest), bits):
        _merge(connection, month, prefixes)
    return connection.execute(_SQL["remove"], {"until": until}).rowcount


def find(connection: Connection, message_ids: Collection[bytes], at_rest: AtRest) -> set[bytes]:
    """Return those of these application message ids (32 bytes each) that are packed.

    Of ids that are not packed, one in 10^11 is found all the same, if a million were packed a month.
    """
    months = months_of(connection)
    wanted = [
        (message_id, month, *_split(at_rest.request(message_id), bits))
        for message_id in message_ids
        for month, bits in months.items()
    ]
    if not wanted:
        return set()
    ids, months_, prefixes, digests = zip(*wanted, strict=True)
    values = {"months": list(months_), "prefixes": list(prefixes), "digests": list(digests)}
    return {
        ids[position - 1]
        for position, place in connection.execute(_SQL["find"], values)
        if (place - 1) % KEPT_BYTES == 0  # at other places it spans two neighbours
    }


def months_of(connection: Connection) -> dict[date, int]:
    """Return the months of which ids are packed, and how many bits their prefixes have."""
    return dict(connection.execute(_SQL["months"]).fetchall())


def forget(connection: Connection, before: date) -> int:
    """Delete the months before one; return how many."""
    connection.execute(_SQL["forget_digests"], {"before": before})
    return connection.execute(_SQL["forget_months"], {"before": before}).rowcount


def _prefix_bits(connection: Connection, month: date, count: int) -> int:
    """Return how many bits choose a row of a month; its first ids decide, as days of a month are much alike."""
    known = months_of(connection).get(month)
    if known is not None:
        return known
    bits = min(MOST_PREFIX_BITS, max(0, math.floor(math.log2(max(1, count / ROW_DIGESTS)))))
    connection.execute(_SQL["begin_month"], {"month": month, "prefix_bits": bits})
    return bits


def _digests(connection: Connection, until: datetime, at_rest: AtRest) -> Iterable[int]:
    """Return the digests of the ids that were admitted until a time, in ascending order."""
    digests = array("Q")
    with connection.cursor(name="ids") as cursor:
        cursor.execute(_SQL["ids"], {"until": until})
        for (message_id,) in cursor:
            digests.append(at_rest.request(message_id))
    return sorted(digests)


def _chunks(digests: Iterable[int], bits: int) -> Iterator[dict[int, set[bytes]]]:
    """Yield what is kept, by prefix, of some rows at a time."""
    chunk: dict[int, set[bytes]] = {}
    for prefix, group in groupby((_split(digest, bits) for digest in digests), key=lambda pair: pair[0]):
        chunk[prefix] = {kept for _, kept in group}
        if len(chunk) >= CHUNK_ROWS:
            yield chunk
            chunk = {}
    if chunk:
        yield chunk


def _merge(connection: Connection, month: date, added: dict[int, set[bytes]]) -> None:
    for prefix, digests in connection.execute(_SQL["read"], {"month": month, "prefixes": list(added)}):
        added[prefix].update(digests[at : at + KEPT_BYTES] for at in range(0, len(digests), KEPT_BYTES))
    rows = {"prefixes": list(added), "digests": [b"".join(sorted(kept)) for kept in added.values()]}
    connection.execute(_SQL["write"], {"month": month, **rows})


def _split(digest: int, bits: int) -> tuple[int, bytes]:
    """Return the prefix of a digest of 64 bits, and what is kept of it."""
    kept = (digest >> (MOST_PREFIX_BITS - bits)) & ((1 << (8 * KEPT_BYTES)) - 1)
    return digest >> (64 - bits), kept.to_bytes(KEPT_BYTES, "big")
