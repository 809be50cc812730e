"""Pruning forgets registrations that nobody can use any more, on a real Postgres."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from prometheus_client import REGISTRY
from psycopg_pool import PoolTimeout
from structlog.testing import capture_logs

from support.served import count_watched, rewrapped
from wakupush.devnet import messages
from wakupush.model.queues import REGISTRATION
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.postgres import exporting, maintenance
from wakupush.server.beat.retention import prune


def test_pruning_stops_watching_whom_nobody_can_notify(server, client):
    content = server.register(client)
    prune(server.context)
    assert count_watched(server.context.redis) == 2
    unregistration = PushNotificationRegistration(unregister=True, version=2, installation_id=content.installation_id)
    server.handle(REGISTRATION, messages.register(client, server.key, unregistration))
    prune(server.context)
    assert count_watched(server.context.redis) == 0
    assert server.rows("SELECT count(*) FROM query_topics") == [(0,)]


@pytest.mark.parametrize("days", [None, 90])
def test_dead_registrations_are_pruned_only_if_set(open_server, client, days):
    server = open_server(**({"retention": {"registrations": days * 86_400}} if days else {}))
    message = messages.register(client, server.key, messages.registration(client, server.key))
    server.handle(REGISTRATION, message)
    server.rows("UPDATE registrations SET token_died_at = now() - interval '91 days' RETURNING 1")
    prune(server.context)
    assert server.rows("SELECT registered, version FROM registrations") == [(days is None, 1)]
    assert count_watched(server.context.redis) == (2 if days is None else 0)
    server.handle(REGISTRATION, rewrapped(message, server))
    assert server.outcomes(client) == ["success", "VERSION_MISMATCH"]


#: A row in each table that is past its time.
OLD = {
    "ledger_default": "INSERT INTO ledger VALUES ('a', 1, now() - interval '3 days')",
    "message_attempts": "INSERT INTO message_attempts VALUES ('a', 1, now() - interval '3 days')",
    "quarantine": """
        INSERT INTO quarantine (
            message_hash, queue, pubsub_topic, content_topic, payload, message_timestamp, meta, seen_at, reason,
            attempts, quarantined_at
        ) VALUES ('a', '', '', '', '', 1, '', now(), '', 3, now() - interval '9 days')""",
    "app_token_trials": "INSERT INTO app_token_trials VALUES ('', 1, now() - interval '9 days', 0, 1, 1)",
    "admitted_requests_default": "INSERT INTO admitted_requests VALUES ('a', now() - interval '40 days', '1')",
    "query_topics": "INSERT INTO query_topics (key_hash, prefixed, topic) VALUES ('a', false, 'abcd')",
}


@pytest.fixture
def old_rows(server):
    with server.context.pool.connection() as connection:
        connection.execute("CREATE TABLE ledger_20200101 PARTITION OF ledger FOR VALUES FROM (2) TO (3)")
        for insert in OLD.values():
            connection.execute(insert)


def tables_with_old_rows(server):
    """Return the tables that still have a row that is past its time."""
    return {table for table in OLD if server.rows(f"SELECT 1 FROM {table}")}


def break_deletes(server, table):
    with server.context.pool.connection() as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$"
        )
        connection.execute(f"CREATE TRIGGER broken BEFORE DELETE ON {table} EXECUTE FUNCTION broken()")


def failed_rules(logs):
    return [log["rule"] for log in logs if log["event"] == "prune_rule_failed"]


@pytest.mark.usefixtures("old_rows")
@pytest.mark.parametrize("table", OLD)
def test_a_rule_that_fails_stops_no_other(server, table):
    break_deletes(server, table)
    with capture_logs() as logs, pytest.raises(psycopg.errors.RaiseException):
        prune(server.context)
    assert tables_with_old_rows(server) == {table}
    assert failed_rules(logs) == [table.replace("query_topics", "topics")]
    assert server.rows("SELECT to_regclass('ledger_20200101')") == [(None,)]


@pytest.mark.usefixtures("old_rows")
def test_a_fault_is_raised_before_an_outage(server, dsn):
    break_deletes(server, "quarantine")
    with psycopg.connect(dsn) as reader, capture_logs() as logs:
        reader.execute("LOCK TABLE ledger_20200101 IN ACCESS SHARE MODE")  # as pg_dump does
        with pytest.raises(psycopg.errors.RaiseException):
            prune(server.context)
    assert failed_rules(logs) == ["ledger", "quarantine"]
    assert tables_with_old_rows(server) == {"quarantine"}


def test_without_a_connection_the_run_ends(open_server, dsn):
    server = open_server(postgres={"dsn": dsn, "pool_size": 1, "timeout": 1.0})
    with server.context.pool.connection(), capture_logs() as logs, pytest.raises(PoolTimeout):
        prune(server.context)
    assert failed_rules(logs) == []


def test_events_that_the_export_never_took_are_told(server):
    with server.context.pool.connection() as connection:
        maintenance.create_partitions(connection, datetime.now(UTC).date() - timedelta(days=20))
        connection.execute(
            "INSERT INTO delivery_events (time, schema_version, kind, worker)"
            " SELECT now() - n * interval '5 days', 4, 'received', '' FROM generate_series(0, 4) AS n"
        )
        exporting.note_exported(connection, 1)
    before = REGISTRY.get_sample_value("wakupush_event_days_lost_total")
    with capture_logs() as logs:
        prune(server.context)
    assert [log["days"] for log in logs if log["event"] == "events_lost"] == [1]
    assert REGISTRY.get_sample_value("wakupush_event_days_lost_total") == before + 1
    assert server.rows("SELECT count(*) FROM delivery_events") == [(3,)]
    server.rows("UPDATE event_export SET exported_at = now() - interval '31 days' RETURNING 1")
    prune(server.context)
    prune(server.context)
    assert server.rows("SELECT count(*) FROM delivery_events") == [(2,)]
