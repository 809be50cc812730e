"""Retention: partitions that are made and dropped, and a rule for whatever grows."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from support.rows import NOW, delivery, entry, take_on
from wakupush.devnet.parts.processes import wait_until
from wakupush.model.deliveries import DeliveryState, Settlement
from wakupush.model.events import Event, EventKind
from wakupush.model.platforms import Platform
from wakupush.model.queues import REGISTRATION
from wakupush.model.retention import RetentionRule
from wakupush.postgres import (
    deliveries,
    events,
    ledger,
    maintenance,
    requests,
    shadow,
    token_trials,
)
from wakupush.runtime.settings import RetentionSettings
from wakupush.server.schedule.prune import rules


def test_todays_rows_have_partitions(connection):
    ledger.add(connection, [entry(1, int(NOW.timestamp() * 1e9))])
    events.add(connection, [Event(kind=EventKind.RECEIVED, time=NOW.timestamp(), worker="w", trace_id="t")])
    for table in maintenance.PARTITIONED:
        assert connection.execute(f"SELECT count(*) FROM {table}_default").fetchone() == (0,)
        assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,)


def test_partitions_go_once_all_their_rows_are_old(connection):
    old = NOW.date() - timedelta(days=10)
    maintenance.create_partitions(connection, old)
    ledger.add(connection, [entry(1, int((NOW - timedelta(days=10)).timestamp() * 1e9))])
    assert maintenance.drop_partitions(connection, maintenance.LEDGER, 2 * 86400, NOW.date()) == 4
    connection.execute("UPDATE ledger SET received_at = now() - interval '3 days'")
    assert maintenance.drop_partitions(connection, maintenance.LEDGER, 2 * 86400, NOW.date()) == 1
    assert connection.execute("SELECT count(*) FROM ledger").fetchone() == (0,)


def drop_all_partitions(connection):
    with connection.transaction():
        maintenance.drop_partitions(connection, maintenance.LEDGER, 0.0, NOW.date())


@pytest.mark.parametrize(
    "change",
    [
        lambda connection: maintenance.create_partitions(connection, NOW.date() + timedelta(days=5)),
        drop_all_partitions,
    ],
    ids=["create", "drop"],
)
def test_with_a_long_reader_partitions_are_left_as_they_are_and_nobody_waits(connection, dsn, change):
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


@pytest.mark.parametrize("rule", rules(RetentionSettings()), ids=lambda rule: rule.name)
def test_every_rule_deletes(connection, rule):
    take_on(connection, [delivery(1), delivery(2)], {})
    deliveries.settle(connection, [Settlement(delivery=delivery(1), state=DeliveryState.DELIVERED)])
    deliveries.settle(connection, [Settlement(delivery=delivery(2), state=DeliveryState.DEAD_LETTER)])
    ledger.count_attempt(connection, entry(5))
    ledger.quarantine(connection, REGISTRATION, entry(1), reason="x", attempts=3, owner=None)
    requests.admit(connection, {b"m" * 32: [True]})
    shadow.begin(connection)
    shadow.end(connection, 0.0)
    token_trials.count(connection, [(Platform.IOS, True, False)])
    events.add(connection, [Event(kind=EventKind.RECEIVED, time=0.0, worker="w", trace_id="t")])
    assert maintenance.delete(connection, RetentionRule(rule.name, 3600)) == (rule.name == "delivery_events_default")
    assert maintenance.delete(connection, RetentionRule(rule.name, 0)) == (rule.name != "delivery_events_default")
