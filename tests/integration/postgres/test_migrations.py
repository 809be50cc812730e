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
    with pytest.raises(runner.ChangedMigrationError, match="0001_pre_initial"):
        runner.migrate(connection)
