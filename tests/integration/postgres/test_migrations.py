"""Migrations: once, whoever starts them, and none that was changed."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psycopg
import pytest

from wakupush.devnet.processes import wait_until
from wakupush.postgres.migrations import runner
from wakupush.postgres.migrations.runner import Migration


def test_migrations_that_start_at_once_run_once(empty_dsn):
    def migrate(_):
        with psycopg.connect(empty_dsn, autocommit=True) as connection:
            return runner.migrate(connection)

    with ThreadPoolExecutor(8) as threads:
        applied = sorted(threads.map(migrate, range(8)), key=len)
    assert applied[-1] == [migration.name for migration in runner.migrations()]
    assert applied[:-1] == [[]] * 7


def test_a_migration_that_was_changed_is_refused(connection):
    connection.execute("UPDATE schema_migrations SET checksum = 'other'")
    with pytest.raises(runner.ChangedMigrationError, match="0100_pre_initial"):
        runner.migrate(connection)


@pytest.mark.parametrize("pre_only", [True, False])
def test_a_database_of_an_alpha_version_is_refused(empty_dsn, pre_only):
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE schema_migrations (name text PRIMARY KEY, checksum text NOT NULL)")
        for name in ("0001_pre_initial", "0017_pre_shadow"):
            connection.execute("INSERT INTO schema_migrations VALUES (%s, '')", [name])
        with pytest.raises(runner.TooOldDatabaseError, match=r"0017_pre_shadow.*export reference.*import reference"):
            runner.migrate(connection, pre_only=pre_only)
        assert connection.execute("SELECT to_regclass('registrations')").fetchone() == (None,)


#: What a later release may bring: a table that is locked, and two indexes that are built while others write.
LOCKING = Migration("9001_pre_locks", "ALTER TABLE answers ADD COLUMN mine text", "")
INDEXES = Migration(
    "9001_pre_locks_indexes",
    runner.CONCURRENT
    + """
    CREATE INDEX CONCURRENTLY IF NOT EXISTS answers_first ON answers (trace_id);
    -- It fails where an answer has no topic.
    CREATE INDEX CONCURRENTLY IF NOT EXISTS answers_second ON answers (trace_id) WHERE 1 / length(content_topic) > 0;
    """,
    "",
)


@pytest.fixture
def later(monkeypatch):
    """Let these be pending."""

    def let(*more):
        all_migrations = [*migrations, *more]
        monkeypatch.setattr(runner, "migrations", lambda: all_migrations)

    migrations = runner.migrations()
    monkeypatch.setattr(runner, "LOCK_SECONDS", 0.3)
    monkeypatch.setattr(runner, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(runner, "TRIES", 2)
    return let


def test_blocked_migration_names_who_blocks(connection, dsn, later):
    later(LOCKING)
    with psycopg.connect(dsn, application_name="the dump") as dump:
        dump.execute("SELECT FROM answers")
        time.sleep(0.3)
        with pytest.raises(runner.BlockedError, match=r"9001_pre_locks.*the dump, for \d+ s\) uses answers"):
            runner.migrate(connection)
        # Nobody waits behind it any more.
        connection.execute("INSERT INTO answers VALUES (DEFAULT, '', 't', '', '', DEFAULT, now())")
    assert runner.migrate(connection) == [LOCKING.name]


def test_migration_tries_again_when_it_is_blocked(connection, dsn, later, monkeypatch):
    later(LOCKING)
    with psycopg.connect(dsn) as dump:
        dump.execute("SELECT FROM answers")
        # Its own name of the module: threads of other libraries sleep too.
        monkeypatch.setattr(runner, "time", SimpleNamespace(sleep=lambda _: dump.rollback()))
        assert runner.migrate(connection) == [LOCKING.name]


def test_migration_that_ends_in_a_deadlock_tries_again(connection, dsn, later, monkeypatch):
    """A worker has the second table, and wants the first."""
    both = "ALTER TABLE answers ADD COLUMN mine text; ALTER TABLE waiting_queries ADD COLUMN mine text"
    later(Migration("9001_pre_both", both, ""))
    monkeypatch.setattr(runner, "LOCK_SECONDS", 10)
    connection.execute("SET deadlock_timeout = '50ms'")
    blocked = "SELECT count(*) FROM pg_locks WHERE relation = 'waiting_queries'::regclass AND NOT granted"
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn) as worker, psycopg.connect(dsn) as other:
        other.autocommit = True
        worker.execute("SET deadlock_timeout = '1min'")
        worker.execute("DELETE FROM waiting_queries")
        migrating = pool.submit(runner.migrate, connection)
        wait_until(lambda: other.execute(blocked).fetchone() == (1,), timeout=20, what="the migration waits")
        worker.execute("DELETE FROM answers")
        worker.commit()
        assert migrating.result(30) == ["9001_pre_both"]


def test_index_is_built_while_others_write(connection, dsn, later):
    later(INDEXES)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(dsn, autocommit=True) as other, psycopg.connect(dsn) as writer:
        writer.execute("INSERT INTO answers VALUES (DEFAULT, '', 't', '', '', DEFAULT, now())")
        migrating = pool.submit(runner.migrate, connection)
        building = "SELECT count(*) FROM pg_stat_progress_create_index"
        wait_until(lambda: other.execute(building).fetchone() == (1,), timeout=20, what="an index is being built")
        other.execute("SET lock_timeout = '1s'")
        other.execute("INSERT INTO answers VALUES (DEFAULT, '', 't', '', '', DEFAULT, now())")
        assert not migrating.done()
        writer.commit()
        assert migrating.result(30) == [INDEXES.name]


def test_index_that_was_interrupted_is_built_again(connection, later):
    later(INDEXES)
    connection.execute("INSERT INTO answers VALUES (DEFAULT, '', '', '', '', DEFAULT, now())")
    with pytest.raises(psycopg.errors.DivisionByZero):
        runner.migrate(connection)
    valid = "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON oid = indexrelid WHERE relname = ANY (%s)"
    names = [["answers_first", "answers_second"]]
    assert sorted(connection.execute(valid, names)) == [("answers_first", True), ("answers_second", False)]
    first = connection.execute("SELECT 'answers_first'::regclass::oid").fetchone()
    connection.execute("DELETE FROM answers")
    assert runner.migrate(connection) == [INDEXES.name]
    assert sorted(connection.execute(valid, names)) == [("answers_first", True), ("answers_second", True)]
    assert connection.execute("SELECT 'answers_first'::regclass::oid").fetchone() == first
    assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_indexes_of_old_tables_are_built_concurrently():
    first, *others = runner.migrations()
    for migration in others:
        own_tables = set(re.findall(r"CREATE TABLE (\w+)", migration.sql))
        indexed = set(re.findall(r"CREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY)\w+ ON (?!ONLY)(\w+)", migration.sql))
        assert indexed <= own_tables, (
            f"{migration.name}: these are large where the server is old; see runner.CONCURRENT"
        )
        if migration.is_concurrent:
            assert all(runner._INDEX.fullmatch(statement) for statement in migration.statements)
    assert first.number == runner.FIRST


END = "SELECT pg_terminate_backend(pg_backend_pid())"


@pytest.mark.parametrize("migration", [Migration("9001_pre_end", END, ""), INDEXES], ids=["at once", "by indexes"])
def test_error_that_ends_a_migration_is_not_hidden(connection, later, monkeypatch, migration):
    """Postgres was restarted: its words say more than that the connection is closed."""
    later(migration)
    monkeypatch.setattr(runner, "_INVALID", f"{END}, %s::text")
    with pytest.raises(psycopg.errors.AdminShutdown):
        runner.migrate(connection)
