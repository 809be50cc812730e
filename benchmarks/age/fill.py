"""An old and large database: rows made in Postgres itself, and their indexes built afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
from psycopg import Connection, sql

from wakupush.postgres import maintenance
from wakupush.runtime.settings import RetentionSettings

#: Messages of a user a day, ids of push requests, and events: docs/internals/scale.md has the traffic.
MESSAGES_A_DAY = 30
REQUESTS_A_DAY = 20
EVENTS_A_DAY = 54
DAY = 86_400
#: Rows of one statement.
CHUNK = 2_000_000


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large the database is. What grows with time is there at a scale, or it would not fit on a disk."""

    users: int = 10_000_000
    #: One row stands for so many.
    ledger_scale: int = 10
    ids_scale: int = 100
    events_scale: int = 400
    #: Finished deliveries of a day.
    deliveries_scale: int = 100
    expired: int = 5_000_000
    #: Deliveries that wait for their first attempt.
    pending: int = 1_000_000

    def rows(self, keep: RetentionSettings) -> dict[str, int]:
        """Return the rows of each part, under these retentions."""
        return {
            "registrations": self.users,
            "query_topics": 2 * self.users,
            "admitted_requests": int(self.users * REQUESTS_A_DAY * keep.admitted_requests / DAY) // self.ids_scale,
            "ledger": int(self.users * MESSAGES_A_DAY * keep.ledger / DAY) // self.ledger_scale,
            "delivery_events": int(self.users * EVENTS_A_DAY * keep.events / DAY) // self.events_scale,
            "expired": self.expired,
            "delivered": self.users * REQUESTS_A_DAY // self.deliveries_scale,
            "pending": self.pending,
        }

    def scales(self) -> str:
        """Say what one row stands for."""
        return (
            f"ledger 1:{self.ledger_scale}, ids 1:{self.ids_scale}, events 1:{self.events_scale},"
            f" finished deliveries 1:{self.deliveries_scale}, all else 1:1"
        )


#: The rows of each part with the numbers from `first` on, of `rows` in all. Keys are uniform, as hashes are.
_KEY = "sha512(int8send(n))"
_ID = "sha256(int8send(n))"
#: A tenth of a per mille of the users has no registration any more: what their topics and lists are for.
_IS_REGISTERED = "n % 10000 <> 0"
_BODIES = {
    "registrations": f"""
        INSERT INTO registrations (
            key_hash, installation_hash, version, request_digest, registered, token_type, enabled,
            allow_from_contacts_only, block_mentions, sealed_device, sealed_allowed_key_list, access_token_digest,
            blocked_chat_digests, muted_chat_digests, token_died_at, proven
        )
        SELECT {_KEY}, substr({_ID}, 1, 16), 1 + n % 400, substr({_ID}, 17), {_IS_REGISTERED},
            CASE WHEN {_IS_REGISTERED} THEN 1 + n % 2 END, CASE WHEN {_IS_REGISTERED} THEN true END,
            CASE WHEN {_IS_REGISTERED} THEN false END, CASE WHEN {_IS_REGISTERED} THEN false END,
            CASE WHEN {_IS_REGISTERED} THEN {_KEY} || {_KEY} || {_KEY} || {_KEY} END,
            CASE WHEN {_IS_REGISTERED} AND n % 4 = 0 THEN {_KEY} || {_KEY} END,
            CASE WHEN {_IS_REGISTERED} THEN substr({_ID}, 1, 16) END,
            CASE WHEN {_IS_REGISTERED} AND n % 3 = 0 THEN {_ID} END,
            CASE WHEN {_IS_REGISTERED} AND n % 3 = 0 THEN {_KEY} END,
            CASE WHEN {_IS_REGISTERED} AND n % 50 = 0 THEN now() - n % 400 * interval '1 day' END,
            CASE WHEN {_IS_REGISTERED} THEN n % 50 <> 0 END
        FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
    """,
    "query_topics": f"""
        INSERT INTO query_topics (key_hash, prefixed, topic, symmetric_key, added_at)
        SELECT {_KEY}, prefixed, substr(sha256(int8send(2 * n + prefixed::int)), 1, 4),
            CASE WHEN n % 100 <> 0 THEN {_ID} END,
            now() - interval '400 days' * ((%(rows)s - 2 * n) / %(rows)s::float8)
        FROM generate_series(%(first)s::bigint / 2, %(last)s::bigint / 2) AS n, (VALUES (false), (true)) AS p (prefixed)
    """,
    "admitted_requests": f"""
        INSERT INTO admitted_requests (message_id, succeeded, week)
        SELECT {_ID}, '1',
            date_trunc('week', now() AT TIME ZONE 'UTC' - interval '30 days' * (n / %(rows)s::float8))::date
        FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
    """,
    "ledger": f"""
        INSERT INTO ledger (message_hash, message_timestamp, received_at)
        SELECT {_ID}, (extract(epoch FROM received) * 1e9)::bigint, received
        FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n,
            LATERAL (SELECT now() - interval '2 days' * ((n + 1) / %(rows)s::float8)) AS r (received)
    """,
    "delivery_events": f"""
        INSERT INTO delivery_events (
            time, transaction_id, schema_version, kind, queue, queue_wait, latency, platform, attempt, batch_size,
            worker, trace_id, key_pseudonym, installation_pseudonym
        )
        SELECT now() - %(events)s * interval '1 second' * ((%(rows)s - n) / %(rows)s::float8),
            (n / 100000 + 10)::text::xid8, 3, 'delivered', 'dispatch', 0.1, 0.2, 'APN', 1, 1, 'worker',
            encode(substr({_ID}, 1, 16), 'hex'), substr({_ID}, 1, 16),
            substr({_ID}, 17, 16)
        FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
    """,
}
_DELIVERY = f"""
    INSERT INTO deliveries (
        delivery_key, key_hash, installation_hash, platform, notification_type, sealed_content, state, attempt, failure,
        next_attempt_at, seen_at, expires_at, finished_at, task_id, trace_id
    )
    SELECT sha256(int8send(n + {{base}})), {_KEY}, substr({_ID}, 1, 16), 1 + n % 2, 1, {{content}}, '{{state}}',
        {{attempt}}, {{failure}}, {{next_attempt}}, seen, seen + interval '1 day', {{finished}},
        gen_random_uuid()::text, encode(substr({_ID}, 1, 16), 'hex')
    FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n,
        LATERAL (SELECT now() - interval '{{age}}' * (n / %(rows)s::float8)) AS s (seen)
"""
_CONTENT = f"{_KEY} || {_KEY} || {_KEY}"
_IN_ORDER = """CASE WHEN seen < date_trunc('day', now() - interval '1 day', 'UTC') THEN date_trunc('day', seen, 'UTC')
    ELSE seen END"""
_COLUMNS = ("state", "attempt", "base", "content", "failure", "next_attempt", "finished", "age")
_STATES = (
    # Of an outage that ended: most of them are as old as they are kept, or older, and in order but for the last day's.
    ("expired", 3, 10**12, _CONTENT, "'gorush_unreachable'", "NULL", _IN_ORDER, "8 days"),
    ("delivered", 1, 2 * 10**12, "NULL", "NULL", "NULL", "seen", "25 hours"),
    ("pending", 0, 3 * 10**12, _CONTENT, "NULL", "seen", "NULL", "1 hour"),
)
_DELIVERIES = {row[0]: _DELIVERY.format(**dict(zip(_COLUMNS, row, strict=True))) for row in _STATES}
_BODIES |= _DELIVERIES
#: Parts that are made anew for each run: the jobs delete them, or a day makes them too old.
DATED = ("ledger", "delivery_events", *_DELIVERIES)


def fill(
    dsn: str, size: Size, parts: tuple[str, ...] = (), progress: Callable[[str, int], None] = lambda *_: None
) -> None:
    """Fill the tables of a schema.

    Args:
        dsn: of a database with the schema, as its owner.
        size: of it.
        parts: those that are filled; empty for all. What their tables have is deleted.
        progress: called with the name of a part and the rows that were added.
    """
    keep = RetentionSettings()
    counts = size.rows(keep)
    filled_parts = [part for part in counts if not parts or part in parts]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute("SET maintenance_work_mem = '1GB'")
        connection.execute("SET max_parallel_maintenance_workers = 1")
        _make_partitions(connection, keep)
        for table in dict.fromkeys("deliveries" if part in _DELIVERIES else part for part in filled_parts):
            connection.execute(sql.SQL("TRUNCATE {}").format(sql.Identifier(table)))
            with _indexes_afterwards(connection, table, progress):
                for part in filled_parts:
                    if part == table or (table == "deliveries" and part in _DELIVERIES):
                        _insert(connection, part, counts[part], keep, progress)
            connection.execute(sql.SQL("VACUUM (ANALYZE, FREEZE) {}").format(sql.Identifier(table)))
        connection.execute("CHECKPOINT")


def _insert(
    connection: Connection, part: str, rows: int, keep: RetentionSettings, progress: Callable[[str, int], None]
) -> None:
    for first in range(0, rows, CHUNK):
        last = min(first + CHUNK, rows) - 1
        values = {"first": first, "last": last, "rows": rows, "events": keep.events}
        connection.execute(_BODIES[part].replace(" % ", " %% "), values)
        progress(part, last + 1 - first)


def _make_partitions(connection: Connection, keep: RetentionSettings) -> None:
    today = datetime.now(UTC).date()
    oldest = max(keep.ledger, keep.events, keep.admitted_requests) / DAY
    for days in range(int(oldest) + 1, -1, -1):
        maintenance.create_partitions(connection, today - timedelta(days=days))


@contextmanager
def _indexes_afterwards(connection: Connection, table: str, progress: Callable[[str, int], None]) -> Iterator[None]:
    """Drop the indexes of a table and its partitions, and build them again when it is filled."""
    own = connection.execute(_INDEXES, {"table": table}).fetchall()
    for _, name, constraint, relation in own:
        command = "ALTER TABLE {} DROP CONSTRAINT {}" if constraint else "DROP INDEX {1}"
        connection.execute(sql.SQL(command).format(sql.Identifier(relation), sql.Identifier(name)))
    yield
    for definition, name, _, relation in own:
        progress(f"index {name} of {relation}", 0)
        connection.execute(definition)


#: Of a table and of its default partition, each with what makes it; those that partitions inherit are left out.
_INDEXES = """
    SELECT
        CASE WHEN con.oid IS NULL THEN replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ')
            ELSE format(
                'ALTER TABLE %%s ADD CONSTRAINT %%I %%s', t.oid::regclass, con.conname, pg_get_constraintdef(con.oid)
            )
        END,
        ic.relname, con.oid IS NOT NULL, t.relname
    FROM pg_index i
    JOIN pg_class ic ON ic.oid = i.indexrelid
    JOIN pg_class t ON t.oid = i.indrelid
    LEFT JOIN pg_constraint con ON con.conindid = i.indexrelid AND con.conrelid = t.oid
    WHERE (t.oid = %(table)s::regclass OR t.oid IN (
            SELECT inhrelid FROM pg_inherits WHERE inhparent = %(table)s::regclass
        ))
        AND NOT ic.relispartition
    ORDER BY con.oid IS NULL
"""
