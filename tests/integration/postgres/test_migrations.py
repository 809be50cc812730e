"""Migrations: once, whoever starts them, and none that was changed."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from wakupush.postgres.migrations import runner


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
