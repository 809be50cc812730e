"""Partitions are made while rows are in the default ones and everybody writes: nothing is moved, nobody waits."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from support import plans
from support.deciding import IDENTITY
from wakupush.model.entries import Entry
from wakupush.model.events import Event, EventKind
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import events, history, ledger, maintenance

NOW = datetime.now(UTC)
DAY = 86_400 * 10**9
#: Nanoseconds from now at which messages have no partition: absurd, past, and days to come.
WITHOUT_PARTITION = (-(2**62), -30 * DAY, 4 * DAY, 200 * DAY)


def entry(number, ahead=0):
    timestamp = int(NOW.timestamp() * 10**9) + ahead
    return Entry("/shard", number.to_bytes(32), 0.0, WakuMessage(payload=b"x", content_topic="", timestamp=timestamp))


def partition(days, table="ledger"):
    return f"{table}_{NOW.date() + timedelta(days=days):%Y%m%d}"


def partitions(connection, table="ledger"):
    rows = connection.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [table]
    )
    return {name for (name,) in rows}


def promises(connection):
    return connection.execute("SELECT conname FROM pg_constraint WHERE conname LIKE 'without%'").fetchall()


class Watched:
    """A connection that has others write after each of its statements, and keeps what Postgres says beside it."""

    def __init__(self, connection, others):
        self.connection, self.others, self.notices, self.locks_held, self.number = connection, others, [], [], 100
        connection.add_notice_handler(lambda notice: self.notices.append(notice.message_primary))
        connection.execute("SET client_min_messages = debug1")

    def transaction(self):
        return self.connection.transaction()

    def execute(self, statement, parameters=None):
        text = f"{statement} {parameters}"
        cursor = self.connection.execute(statement, parameters)
        locks = self.others.execute(
            "SELECT relation::regclass::text FROM pg_locks WHERE pid = %s AND mode = 'AccessExclusiveLock'"
            " AND relation IS NOT NULL",
            [self.connection.info.backend_pid],
        ).fetchall()
        self.locks_held.append((text, {name for (name,) in locks}))
        if not locks:
            self.write()
        return cursor

    def write(self):
        """Enter messages that go to the default partition and to that of today, and look some up."""
        self.number += 2
        some = [entry(self.number, -30 * DAY), entry(self.number + 1)]
        assert len(ledger.add(self.others, some)) == 2
        assert len(ledger.known(self.others, some)) == 2


@pytest.fixture
def others(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '20s'")
        yield connection


def test_create_partition_does_not_block_writers(connection, others):
    """What a stranger put into the default partition is nobody's wait, and stays where it is."""
    ledger.add(connection, [entry(number, ahead) for number, ahead in enumerate((0, *WITHOUT_PARTITION))])
    default = "SELECT count(DISTINCT message_hash) FROM ledger_default"
    assert connection.execute(default).fetchone() == (len(WITHOUT_PARTITION),)
    watched = Watched(connection, others)
    maintenance.create_partitions(watched, NOW.date() + timedelta(days=2))
    assert {partition(5), *map(partition, range(-1, 4))} <= partitions(connection)
    assert partition(4) not in partitions(connection)  # its rows are in the default partition
    implied = [notice for notice in watched.notices if 'ledger_default" is implied by existing constraints' in notice]
    assert len(implied) == 1  # Postgres saw no row of it under the lock: only one partition was to be made
    scans = [locked_tables for text, locked_tables in watched.locks_held if "'check'" in text or "has rows" in text]
    assert scans
    assert not set.union(*scans) & {"ledger", "ledger_default"}
    assert not any("DELETE" in text or "INSERT" in text for text, _ in watched.locks_held)
    assert not any("ledger" in locked_tables for _, locked_tables in watched.locks_held)
    assert connection.execute(default).fetchone()[0] > len(WITHOUT_PARTITION)  # others wrote meanwhile
    assert promises(connection) == []
    [late] = [entry(50, 5 * DAY)]
    ledger.add(connection, [late])
    assert connection.execute(f"SELECT count(*) FROM {partition(5)}").fetchone() == (1,)


def test_interrupted_attach_leaves_no_constraint(connection):
    maintenance._do("promise", connection, maintenance.LEDGER, NOW.date() + timedelta(days=5))
    maintenance.create_partitions(connection, NOW.date() + timedelta(days=2))
    assert partition(5) in partitions(connection)
    assert promises(connection) == []


def test_an_abandoned_promise_is_taken_back(connection):
    maintenance._do("promise", connection, maintenance.LEDGER, NOW.date() + timedelta(days=5))
    ledger.add(connection, [entry(1, -30 * DAY)])
    maintenance.create_partitions(connection, NOW.date() + timedelta(days=5))
    assert ledger.add(connection, [entry(2, 5 * DAY)])
    assert promises(connection) == []


def test_untimely_rows_stay_in_the_default_partition(connection, others):
    """As by a clock that is wrong: nobody is refused for longer than that takes."""
    late = entry(1, 4 * DAY)

    class Late(Watched):
        def execute(self, statement, parameters=None):
            cursor = self.connection.execute(statement, parameters)
            text = f"{statement} {parameters}"
            if "has rows" in text and not self.locks_held:
                self.locks_held.append((text, set()))
                ledger.add(self.others, [late])
            return cursor

    maintenance.create_partitions(Late(connection, others), NOW.date() + timedelta(days=2))
    assert promises(connection) == []
    assert {partition(4), partition(5)} & partitions(connection) == {partition(5)}
    assert not ledger.add(connection, [late])


def test_a_day_in_use_stays_in_the_default_partition(connection):
    past = NOW.date() - timedelta(days=20)
    old = entry(1, -20 * DAY)
    ledger.add(connection, [old])
    maintenance.create_partitions(connection, past)
    assert f"ledger_{past:%Y%m%d}" not in partitions(connection)
    assert f"ledger_{past + timedelta(days=2):%Y%m%d}" in partitions(connection)
    assert connection.execute("SELECT count(DISTINCT message_hash) FROM ledger_default").fetchone() == (1,)
    assert not ledger.add(connection, [old])


def test_default_partition_keeps_events_of_a_busy_day(connection):
    past = Event(kind=EventKind.RECEIVED, time=NOW.timestamp() - 20 * 86400, worker="w", trace_id="t")
    events.add(connection, [past], IDENTITY)
    maintenance.create_partitions(connection, (NOW - timedelta(days=20)).date())
    events.add(connection, [past], IDENTITY)
    assert connection.execute("SELECT count(*), count(DISTINCT id) FROM delivery_events").fetchone() == (2, 2)
    assert connection.execute("SELECT count(*) FROM delivery_events_default").fetchone() == (2,)


@pytest.mark.parametrize("query", ["of_user", "losses"])
def test_minutes_of_a_day_are_found_without_reading_the_day(connection, query):
    maintenance.create_partitions(connection, NOW.date())
    connection.execute(
        """INSERT INTO delivery_events (
            time, transaction_id, schema_version, kind, queue, count, worker, key_pseudonym, trace_id
        )
        SELECT now() - interval '5 hours' + number * interval '0.1 s', '1', 5, 'delivered', 'dispatch', 1, 'worker',
            sha256(number::text::bytea), number::text
        FROM generate_series(1, 180000) AS number"""
    )
    connection.execute("VACUUM ANALYZE delivery_events")
    since = NOW - timedelta(hours=3)
    values = {"since": since, "until": since + timedelta(minutes=10), "pseudonyms": [b"x"], "most": 50}
    nodes = plans.executed(connection, history._SQL[query], values)
    scans = [node for node in nodes if node.get("Relation Name")]
    removed_rows = sum(node.get(f"Rows Removed by {by}", 0) for node in scans for by in ("Filter", "Index Recheck"))
    assert removed_rows + sum(node["Actual Rows"] for node in scans) < 15_000
