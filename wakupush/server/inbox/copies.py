"""Leaving out old copies before anything is opened."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg_pool import ConnectionPool

from wakupush.model.entries import Entry
from wakupush.postgres import ledger
from wakupush.runtime import metrics


def without_known(pool: ConnectionPool, entries: Sequence[Entry], stale: Sequence[Entry]) -> list[Entry]:
    """Return the messages to open, without stale ones that are in the ledger: those are copies, which anybody can send.

    Args:
        pool: of connections.
        entries: as they came.
        stale: those of them that may be copies, see `Entry.is_stale`; at least one.
    """
    with pool.connection() as connection:
        known = ledger.known(connection, stale)
    if known:
        metrics.MESSAGES_KNOWN.inc(len(known))
    return [entry for entry in entries if entry.hash not in known]
