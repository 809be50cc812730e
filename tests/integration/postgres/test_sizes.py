"""What a query or a segment would load is known before: the rows say it, and what they hold stays on the disk."""

import os
from contextlib import nullcontext

import psycopg
import pytest

from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import ledger, message_segments, quarantine, registrations
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.sealing import UnsealableError
from wakupush.protocol.segments import Segment

CONTACTS = 1200


@pytest.fixture
def connection(server):
    """One whose every statement is a transaction, so that what it read is counted when it is over."""
    dsn = server.context.settings.postgres.dsn.get_secret_value()
    with psycopg.connect(dsn, autocommit=True) as opened:
        yield opened


def out_of_line(connection, work):
    """Return how many pages a piece of work reads of what is kept outside of its rows, and what it comes to."""

    def count():
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("SELECT pg_stat_clear_snapshot()")
        counts = "SELECT coalesce(sum(toast_blks_hit + toast_blks_read), 0) FROM pg_statio_user_tables"
        return int(connection.execute(counts).fetchone()[0])

    before = count()
    result = work()
    return count() - before, result


@pytest.fixture
def users(server):
    """Of nobody, of some and of many contacts; the last one lets everybody notify."""
    users = {}
    for contacts, only in ((0, True), (1, True), (CONTACTS, True), (CONTACTS, False)):
        user = PrivateKey.generate()
        sealed = [os.urandom(64) for _ in range(contacts)]
        server.register(user, allow_from_contacts_only=only, allowed_key_list=sealed)
        users[user.public_key.key_hash] = contacts if only else 0
    return users


def test_answer_size_is_read_without_loading(connection, users):
    pages, sizes = out_of_line(connection, lambda: registrations.answer_sizes(connection, list(users)))
    assert len(sizes.bytes_by_user) == len(users)
    assert pages == 0


def test_what_is_loaded_for_an_answer_is_seen(connection, server, users):
    at_rest = server.context.identity.at_rest
    pages, devices = out_of_line(connection, lambda: registrations.devices(connection, list(users), at_rest))
    assert len(devices) == len(users)
    assert pages > 0


def test_segment_sizes_are_read_without_loading(connection, server):
    name, at_rest = (b"\2" * 33, b"h" * 32), server.context.identity.at_rest
    parts = [(name[0], Segment(name[1], index, 6, os.urandom(50_000))) for index in range(5)]
    message_segments.keep(connection, parts, at_rest)
    pages, sizes = out_of_line(connection, lambda: message_segments.stored(connection, [name]))
    assert sizes[name][0] == frozenset(range(5))
    assert 250_000 <= sizes[name][1] <= 251_000
    assert pages == 0
    pages, loaded = out_of_line(connection, lambda: message_segments.parts(connection, [name], at_rest))
    assert pages > 0
    assert sum(map(len, loaded[name].values())) == 250_000


def test_a_segment_costs_no_more_the_more_are_kept(connection, server):
    """Those of its signer are looked at, through the index, and not all: 10,000 took 30 ms of each task."""
    at_rest = server.context.identity.at_rest
    for _ in range(4):
        strangers = [(os.urandom(33), Segment(os.urandom(32), 0, 2, b"part")) for _ in range(1000)]
        message_segments.keep(connection, strangers, at_rest)
    own = [(b"\2" * 33, Segment(b"h" * 32, index, 9, b"part")) for index in range(5)]
    message_segments.keep(connection, own, at_rest)
    connection.execute("ANALYZE message_segments")
    rows = """SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
        WHERE relname = 'message_segments'"""

    def read():
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("SELECT pg_stat_clear_snapshot()")
        return connection.execute(rows).fetchone()[0]

    before = read()
    assert message_segments.trim(connection, {b"\2" * 33}, parts=3, bytes=1_000_000) == 2
    assert read() - before < 50
    # Messages go whole.
    assert 3 <= message_segments.trim_all(connection, parts=4000, bytes=1_000_000_000) <= 5


@pytest.mark.parametrize("may_old_code_run", [True, False])
def test_old_code_opens_segments_while_it_may_run(connection, server, may_old_code_run):
    """The form before migration 0108 is not bound to its row."""
    at_rest, name = server.context.identity.at_rest, (b"\2" * 33, b"h" * 32)
    if may_old_code_run:
        connection.execute("DELETE FROM schema_migrations WHERE name = '0108_post_seals'")
    message_segments.keep(connection, [(name[0], Segment(name[1], 0, 2, b"part"))], at_rest)
    assert message_segments.parts(connection, [name], at_rest) == {name: {0: b"part"}}
    connection.execute("UPDATE message_segments SET index = 1")
    with nullcontext() if may_old_code_run else pytest.raises(UnsealableError):
        message_segments.parts(connection, [name], at_rest)


def test_chance_decides_which_segments_stay(connection, server):
    """The oldest always went: whoever sends quickly left no other message its parts."""
    at_rest = server.context.identity.at_rest
    messages = [(b"\2" * 33, os.urandom(32)) for _ in range(20)]
    for name in messages:  # each transaction has its own time
        parts = [(name[0], Segment(name[1], index, 3, b"part")) for index in range(2)]
        message_segments.keep(connection, parts, at_rest)
    flood = [(os.urandom(33), Segment(os.urandom(32), 0, 2, b"part")) for _ in range(40)]
    message_segments.keep(connection, flood, at_rest)
    message_segments.trim_all(connection, parts=40, bytes=1_000_000_000)
    segments = message_segments.stored(connection, messages)
    assert segments
    assert {len(indexes) for indexes, _ in segments.values()} == {2}


def test_the_quarantine_keeps_so_many_bytes(connection):
    for _ in range(50):
        message = WakuMessage(payload=os.urandom(20_000), content_topic="/t", timestamp=1)
        entry = Entry("/shard", os.urandom(32), 0.0, message)
        ledger.quarantine(connection, DISPATCH, entry, reason="KeyError", attempts=3, owner=None)
    assert quarantine.trim(connection, bytes=2_000_000) == 0
    assert quarantine.trim(connection, bytes=205_000) == 40
    rows = connection.execute("SELECT count(*), sum(octet_length(payload)) FROM quarantine").fetchall()
    assert rows == [(10, 200_000)]


def test_a_small_quarantine_is_not_read(connection):
    connection.execute(
        "INSERT INTO quarantine (message_hash, queue, pubsub_topic, content_topic, payload, message_timestamp, meta,"
        " seen_at, reason, attempts) SELECT int8send(n), 'query', '', '', '', 1, '', now(), '', 3"
        " FROM generate_series(1, 1000) AS n"
    )
    rows = "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'quarantine'"

    def read():
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.execute("SELECT pg_stat_clear_snapshot()")
        return connection.execute(rows).fetchone()[0]

    before = read()
    assert quarantine.trim(connection, bytes=10**9) == 0
    assert read() == before
    assert quarantine.trim(connection, bytes=1) == 0  # here it is read
    assert read() > before
