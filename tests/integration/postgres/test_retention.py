"""Retention: partitions that are made and dropped, and a rule for whatever grows."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time, timedelta

import psycopg
import pytest

from support import plans
from support.deciding import IDENTITY
from support.rows import IOS, NOW, delivery, entry, take_on
from wakupush.devnet.processes import wait_until
from wakupush.model.deliveries import DeliveryState, Settlement
from wakupush.model.events import Event, EventKind
from wakupush.model.queues import REGISTRATION
from wakupush.postgres import deliveries, events, exporting, ledger, maintenance, requests, token_trials
from wakupush.runtime.settings import RetentionSettings
from wakupush.server.beat.retention import rules


def test_todays_rows_have_partitions(connection):
    ledger.add(connection, [entry(1, int(NOW.timestamp() * 1e9))])
    events.add(connection, [Event(kind=EventKind.RECEIVED, time=NOW.timestamp(), worker="w", trace_id="t")], IDENTITY)
    requests.remember_over(connection, [bytes(32)])
    for table in maintenance.DAYS_PER_PARTITION:
        assert connection.execute(f"SELECT count(*) FROM {table}_default").fetchone() == (0,)
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)


def stamped(number, days_ago):
    """A message of that day, as its sender says."""
    return entry(number, int((NOW - timedelta(days=days_ago)).timestamp() * 1e9))


def ledger_days(connection):
    """Return how many days ago the days were of which the ledger has partitions."""
    names = connection.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'ledger'::regclass")
    today = datetime.now(UTC).date()
    days = (name.removeprefix("ledger_") for (name,) in names)
    return {(today - date.fromisoformat(day)).days for day in days if day.isdigit()}


@pytest.fixture
def old_partitions(connection):
    """Partitions from ten days ago on."""
    for days in range(10, 0, -1):
        maintenance.create_partitions(connection, NOW.date() - timedelta(days=days))


@pytest.mark.usefixtures("old_partitions")
def test_backdated_messages_keep_no_partition(connection):
    """A stranger stamps a message into each day; it is remembered all the same."""
    old = [stamped(days, days) for days in range(2, 11)]
    assert len(ledger.add(connection, old)) == len(old)
    maintenance.drop_partitions(connection, maintenance.LEDGER, 2 * 86400)
    assert ledger_days(connection) == set(range(-3, 4))
    assert ledger.known(connection, old) == {each.hash for each in old}
    assert not ledger.add(connection, old)


@pytest.mark.usefixtures("old_partitions")
@pytest.mark.parametrize("days", [-1, 0, 1, 2, 3, 4, 9, 30, 20_000])
def test_each_message_is_remembered_for_its_time(connection, days):
    """The partitions are dropped that go within the time for which the ledger keeps what it gets now."""
    message = stamped(1, days)
    assert ledger.add(connection, [message])
    maintenance.drop_partitions(connection, maintenance.LEDGER, 0.0)
    assert max(ledger_days(connection)) == 1
    assert not ledger.add(connection, [message])
    assert ledger.known(connection, [message])
    ledger.remove(connection, [message])
    assert ledger.add(connection, [message])


@pytest.mark.parametrize("seconds", [-60, 60])
def test_partition_is_dropped_after_keep_seconds(connection, seconds):
    maintenance.create_partitions(connection, NOW.date() - timedelta(days=9))
    end_of_next_day = datetime.combine(NOW.date() - timedelta(days=7), time(), UTC)
    keep = (datetime.now(UTC) - end_of_next_day).total_seconds() - seconds
    connection.execute("SELECT drop_partition('ledger', %s, %s)", [NOW.date() - timedelta(days=9), keep])
    assert (9 in ledger_days(connection)) == (seconds < 0)


READ = "SELECT pg_stat_get_xact_tuples_returned(%s), pg_stat_get_xact_tuples_fetched(%s)"


@pytest.mark.usefixtures("old_partitions")
@pytest.mark.parametrize("table", [maintenance.LEDGER, maintenance.ADMITTED_REQUESTS])
def test_reads_no_row_of_a_partition_it_drops(connection, table):
    day = NOW.date() - timedelta(days=8)
    if table == maintenance.ADMITTED_REQUESTS:
        day -= timedelta(days=day.weekday())
    old = NOW - timedelta(days=8)
    ledger.add(connection, [entry(number, int(old.timestamp() * 1e9)) for number in range(100)])
    connection.execute("UPDATE ledger SET received_at = %s", [old])
    connection.execute(
        "INSERT INTO admitted_requests (message_id, week, succeeded) SELECT int8send(n), %s, '1'"
        " FROM generate_series(1, 100) AS n",
        [day],
    )
    [(oid, rows)] = connection.execute(
        f"SELECT %s::regclass::oid, (SELECT count(*) FROM {table}_{day:%Y%m%d})", [f"{table}_{day:%Y%m%d}"]
    ).fetchall()
    assert rows == 100
    with connection.transaction():
        before = connection.execute(READ, [oid, oid]).fetchone()
        assert connection.execute("SELECT drop_partition(%s, %s, 3600)", [table, day]).fetchone() == (True,)
        assert connection.execute(READ, [oid, oid]).fetchone() == before
    assert connection.execute("SELECT to_regclass(%s)", [f"{table}_{day:%Y%m%d}"]).fetchone() == (None,)


@pytest.mark.usefixtures("old_partitions")
def test_reads_two_rows_at_most_of_events_it_drops(connection):
    """Whether the lake has them is looked up in an index."""
    old = NOW - timedelta(days=8)
    event = Event(kind=EventKind.RECEIVED, time=old.timestamp(), worker="w", trace_id="t")
    for _ in range(10):
        events.add(connection, [event] * 1000, IDENTITY)
    table = f"{maintenance.EVENTS}_{old:%Y%m%d}"
    connection.execute(f"ANALYZE {table}")
    connection.execute("INSERT INTO event_export (transaction_id) VALUES (pg_current_xact_id())")
    [(oid,)] = connection.execute("SELECT %s::regclass::oid", [table]).fetchall()
    with connection.transaction():
        before = connection.execute(READ, [oid, oid]).fetchone()
        dropped = connection.execute("SELECT drop_events(%s, 3600, 3600)", [old.date()]).fetchone()
        after = connection.execute(READ, [oid, oid]).fetchone()
    assert dropped == ("dropped",)
    assert sum(after) - sum(before) <= 2


def event_days(connection):
    """Return how many days ago the days were of which events are left, in partitions or not."""
    rows = connection.execute(
        "SELECT DISTINCT (now() AT TIME ZONE 'UTC')::date - (time AT TIME ZONE 'UTC')::date FROM delivery_events"
    )
    return {days for (days,) in rows}


def write_events(connection, days):
    """Write an event for each of these days ago in a transaction; return its number."""
    day_events = [
        Event(kind=EventKind.RECEIVED, time=(NOW - timedelta(days=ago)).timestamp(), worker="w", trace_id="t")
        for ago in days
    ]
    events.add(connection, day_events, IDENTITY)
    return connection.execute("SELECT max(transaction_id::text::bigint) FROM delivery_events").fetchone()[0]


DAY = 86_400.0


@pytest.mark.usefixtures("old_partitions")
@pytest.mark.parametrize(
    ("exported", "most_bytes", "expected_days", "outcomes"),
    [
        # A day goes three days after the next one is over, the days without events as well.
        (None, 2**40, {0, 1, 4}, {"dropped": 7}),
        # The day of the mark stays.
        ("all", 2**40, {0, 1, 4, 9}, {"dropped": 6}),
        # What the lake lacks is kept for eight days.
        ("none", 2**40, {0, 1, 4, 6, 8, 9}, {"dropped": 3, "lost": 1}),
        ("none", 0, {0, 1, 4}, {"dropped": 3, "lost": 4}),
    ],
)
def test_events_stay_until_they_are_exported(connection, exported, most_bytes, expected_days, outcomes):
    write_events(connection, [10, 8, 6, 4])
    last = write_events(connection, [9, 1, 0])
    if exported:
        exporting.note_exported(connection, last if exported == "all" else 0)
    assert maintenance.drop_events(connection, 3 * DAY, 8 * DAY, most_bytes) == outcomes
    assert event_days(connection) == expected_days


@pytest.mark.parametrize(("exported", "expected_days"), [(None, {1}), (1, {1, 5}), (2**40, {1})])
def test_events_without_a_partition_likewise(connection, exported, expected_days):
    write_events(connection, [20, 5, 1])
    assert connection.execute("SELECT count(*) FROM delivery_events_default").fetchone() == (2,)
    if exported:
        exporting.note_exported(connection, exported)
    keep_missing = 14 * DAY if exported else 3 * DAY
    maintenance.delete(connection, "delivery_events_default", 3 * DAY, keep_missing)
    assert event_days(connection) == expected_days


@pytest.mark.parametrize(
    "change",
    [
        lambda connection: maintenance.create_partitions(connection, NOW.date() + timedelta(days=5)),
        lambda connection: maintenance.drop_partitions(connection, maintenance.LEDGER, 0.0),
    ],
    ids=["create", "drop"],
)
def test_long_reader_postpones_dropping_partitions(connection, dsn, change):
    maintenance.create_partitions(connection, NOW.date() - timedelta(days=40))
    tables = "SELECT relname FROM pg_class WHERE relname ~ '^(ledger|delivery_events)' AND relkind IN ('r', 'p')"
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with (
        ThreadPoolExecutor(1) as threads,
        psycopg.connect(dsn, autocommit=True) as changing,
        psycopg.connect(dsn) as dump,
    ):
        for (table,) in connection.execute(tables).fetchall():
            dump.execute(f'LOCK TABLE "{table}" IN ACCESS SHARE MODE')  # as pg_dump does
        changed = threads.submit(change, changing)
        try:
            wait_until(lambda: connection.execute(waiting).fetchone()[0], timeout=60, what="a lock is waited for")
            connection.execute("SET statement_timeout = '10s'")
            ledger.add(connection, [entry(1, int(NOW.timestamp() * 1e9))])
            assert isinstance(changed.exception(timeout=60), psycopg.errors.LockNotAvailable)
        finally:
            dump.rollback()


@pytest.mark.parametrize("table", rules(RetentionSettings()))
def test_every_rule_deletes(connection, table):
    take_on(connection, [delivery(1), delivery(2)], {})
    deliveries.settle(connection, [Settlement(delivery=delivery(1), state=DeliveryState.DELIVERED)])
    deliveries.settle(connection, [Settlement(delivery=delivery(2), state=DeliveryState.DEAD_LETTER)])
    ledger.count_attempt(connection, entry(5))
    ledger.quarantine(connection, REGISTRATION, entry(1), reason="x", attempts=3, owner=None)
    connection.execute("INSERT INTO admitted_requests (message_id, week, succeeded) VALUES ('m', '2000-01-03', '1')")
    token_trials.count(connection, [(IOS, True, False)])
    exporting.note_exported(connection, 1)
    is_older = table == "admitted_requests_default"
    assert maintenance.delete(connection, table, 3600) == is_older
    assert maintenance.delete(connection, table, 0) == (not is_older)


#: Many rows that stay longer than those of a rule, and five of the rule, which a scan would come to last.
FILL = {
    "deliveries": """
        INSERT INTO deliveries (
            delivery_key, key_hash, installation_hash, platform, notification_type, state, attempt, finished_at,
            seen_at, expires_at, task_id, trace_id
        )
        SELECT int8send(n), '', '', 1, 1, CASE WHEN n > 100000 THEN 'delivered' ELSE 'expired' END, 1,
            now() - interval '3 days' + n * interval '1 s', now(), now(), '', ''
        FROM generate_series(1, 100005) AS n""",
    "ledger_default": """
        INSERT INTO ledger (message_hash, message_timestamp, received_at)
        SELECT int8send(n), 0, now() - CASE WHEN n > 100000 THEN interval '3 days' ELSE interval '1 hour' END
        FROM generate_series(1, 100005) AS n""",
    "admitted_requests_default": """
        INSERT INTO admitted_requests_default (message_id, week, succeeded)
        SELECT int8send(n), date '2100-01-04' - CASE WHEN n > 100000 THEN 52000 ELSE 0 END, '1'
        FROM generate_series(1, 100005) AS n""",
    "delivery_events_default": """
        INSERT INTO delivery_events (time, schema_version, kind, worker, trace_id)
        SELECT now() - CASE WHEN n > 100000 THEN interval '33 days' ELSE interval '20 days' END, 1, 'received', '', ''
        FROM generate_series(1, 100005) AS n""",
}


@pytest.mark.parametrize("table", FILL)
def test_a_rule_reads_only_what_it_deletes(connection, table):
    connection.execute(FILL[table])
    connection.execute("ANALYZE deliveries, ledger_default, delivery_events_default, admitted_requests_default")
    keep = rules(RetentionSettings()).get(table, 30 * DAY)
    values = {"keep": keep, "keep_missing": keep, "most": maintenance.CHUNK_ROWS}
    nodes = plans.executed(connection, maintenance._SQL[table], values)
    scans = [node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan"]
    assert set(scans) <= {"event_export"}, "which has one row"
    assert sum(node.get("Rows Removed by Filter", 0) for node in nodes) == 0
    assert sum(node["Actual Rows"] for node in nodes if node["Node Type"] == "ModifyTable") == 0
    assert max(node["Actual Rows"] for node in nodes) == 5


#: How 20,000 rows of each table are made, how they are made a day older, and which are in order.
WRITTEN = ("written_on = written_on - 1", "written_on IS NULL")
SORTED_TABLES = {
    "query_topics": (
        "(key_hash, prefixed, topic) SELECT sha256(number::text::bytea), false, '' FROM numbers",
        *WRITTEN,
    ),
    "registrations": (
        """(key_hash, installation_hash, version, request_digest, registered)
        SELECT sha256(number::text::bytea), '', 1, '', false FROM numbers""",
        *WRITTEN,
    ),
    "deliveries": (
        """(delivery_key, key_hash, installation_hash, platform, notification_type, sealed_content, state, attempt,
            seen_at, expires_at, finished_at, task_id, trace_id)
        SELECT key_hash, key_hash, '', 1, 1, '', 'expired', 1, noon, noon, noon, 'task', 'trace'
        FROM numbers, sha256(number::text::bytea) AS key_hash,
            LATERAL (SELECT date_trunc('day', now(), 'UTC') + interval '12 hours') AS today (noon)""",
        "finished_at = finished_at - interval '1 day'",
        "trace_id IS NULL",
    ),
}


@pytest.mark.parametrize("table", SORTED_TABLES)
def test_a_step_reads_few_rows_however_many_were_written_today(connection, table):
    row, past, in_order = SORTED_TABLES[table]
    connection.execute(f"WITH numbers AS (SELECT generate_series(1, 20000) AS number) INSERT INTO {table} {row}")
    connection.execute("SET session_replication_role = replica")
    changed = connection.execute(f"UPDATE {table} SET {past} WHERE get_byte(key_hash, 1) = 7").rowcount
    connection.execute("RESET session_replication_role")
    connection.execute(f"ANALYZE {table}")
    # Postgres may choose such plans by itself; they have to be good.
    connection.execute("SET plan_cache_mode = force_generic_plan")
    start, steps = b"", 0
    query = "SELECT pg_stat_get_xact_tuples_fetched(%s::regclass) + pg_stat_get_xact_tuples_returned(%s::regclass)"
    while start is not None:
        [before] = connection.execute(query, (table, table)).fetchone()
        start = maintenance.sort(connection, table, start)
        [after] = connection.execute(query, (table, table)).fetchone()
        assert after - before < 5 * maintenance.SORTED_ROWS
        steps += 1
    row_counts = connection.execute(f"SELECT count(*) FILTER (WHERE {in_order}), count(*) FROM {table}").fetchone()
    assert (row_counts, steps) == ((changed, 20000), 20)
