"""Ids of push requests that an earlier release packed after a month as rows: a repeat must not push again.

An id became a keyed digest. Its first bits chose a row of the month, the next 48 are in it. Nothing is packed any more:
a row was sized by what the first minute of its month brought, and grew to megabytes.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from typing import Final

from psycopg import Connection

from wakupush.postgres.named_sql import load
from wakupush.protocol.at_rest import AtRest

_SQL = load("packed_requests")
#: Bytes of a digest in its row.
KEPT_BYTES: Final = 6
#: Bits of a prefix at most: together with what is kept it has the 64 of a digest.
MOST_PREFIX_BITS: Final = 16


def find(connection: Connection, message_ids: Collection[bytes], at_rest: AtRest) -> set[bytes]:
    """Return those of these application message ids (32 bytes each) that are packed.

    Of ids that are not packed, one in 10^11 is found all the same, if a million were packed a month.
    """
    months: dict[date, int] = dict(connection.execute(_SQL["months"]).fetchall())
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


def forget(connection: Connection, before: date) -> int:
    """Delete the months before one; return how many."""
    connection.execute(_SQL["forget_digests"], {"before": before})
    return connection.execute(_SQL["forget_months"], {"before": before}).rowcount


def _split(digest: int, bits: int) -> tuple[int, bytes]:
    """Return the prefix of a digest of 64 bits, and what is kept of it."""
    kept = (digest >> (MOST_PREFIX_BITS - bits)) & ((1 << (8 * KEPT_BYTES)) - 1)
    return digest >> (64 - bits), kept.to_bytes(KEPT_BYTES, "big")
