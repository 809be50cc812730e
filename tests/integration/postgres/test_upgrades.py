"""Old code on the new schema, and new code before the last step: what an upgrade without downtime relies on.

`frozen/` has the named SQL of the server's processes of earlier code, in a folder with the number of the last migration
it knew. It is never edited: when a release is made, the files of `wakupush/postgres/sql/` are copied into a new one.
"""

import signal
from pathlib import Path

import psycopg
import pytest

from support.statements import SQL, statements
from wakupush.postgres.migrations import runner
from wakupush.postgres.migrations.runner import Migration
from wakupush.postgres.old_code import OutdatedCodeError, end_if_outdated

FROZEN = sorted((Path(__file__).parent / "frozen").iterdir())
COLUMNS = """
    SELECT table_name, column_name, is_nullable = 'YES' OR column_default IS NOT NULL
    FROM information_schema.columns WHERE table_schema = 'public'
"""


def refusals(dsn, folder):
    """The queries of a folder that Postgres does not understand, and what it says."""
    errors = {}
    with psycopg.connect(dsn, autocommit=True) as connection:
        for name, sql in statements(folder):
            try:
                if sql.startswith("CREATE TEMPORARY TABLE"):
                    connection.execute(sql.replace("ON COMMIT DROP", ""))  # for what comes after it
                elif sql.startswith("COPY"):
                    with connection.cursor().copy(sql):
                        pass
                else:
                    connection.execute(f"PREPARE query AS {sql}")
                    connection.execute("DEALLOCATE query")
            except psycopg.Error as error:
                errors[name] = str(error)
    return errors


def execute(connection, migration):
    for statement in migration.statements:
        connection.execute(statement)


def migrated(dsn, last=None, *, pre_only=False):
    """Bring a database to a migration, or to the newest."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        if last is not None:
            for migration in runner.migrations():
                if migration.name.split("_")[0] <= last:
                    execute(connection, migration)
        elif pre_only:
            first_step(connection)
        else:
            runner.migrate(connection)
    return dsn


def first_step(connection):
    """Bring a database to what the release before this one left, and upgrade it as far as its code may still run."""
    before = [migration for migration in runner.migrations() if migration.number < runner.RELEASE_BEGINS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "migrations", lambda: before)
        patch.setattr(runner.roles, "apply", lambda *_, **__: None)  # it knows columns that come later
        assert runner.migrate(connection) == [migration.name for migration in before]
    runner.migrate(connection, pre_only=True)


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.name)
def test_frozen_queries_fit_their_schema(empty_dsn, frozen):
    assert len(list(statements(frozen))) > 30
    assert refusals(migrated(empty_dsn, frozen.name), frozen) == {}


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.name)
def test_old_code_works_while_the_new_one_comes(empty_dsn, frozen):
    assert refusals(migrated(empty_dsn, pre_only=True), frozen) == {}


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.name)
def test_old_code_can_still_insert_rows(empty_dsn, frozen):
    """A column that is new in an old table may stay empty, or fills itself."""
    with psycopg.connect(migrated(empty_dsn, frozen.name), autocommit=True) as connection:
        old = {(table, column) for table, column, _ in connection.execute(COLUMNS)}
        tables = {table for table, _ in old}
        for migration in runner.migrations():
            if migration.name.split("_")[0] > frozen.name and not migration.is_post:
                execute(connection, migration)
        new = {(table, column): optional for table, column, optional in connection.execute(COLUMNS)}
    assert old <= new.keys(), "a pre migration takes something away"
    assert all(optional for (table, column), optional in new.items() if table in tables and (table, column) not in old)


@pytest.mark.parametrize("pre_only", [True, False], ids=["before the last step", "after it"])
def test_new_code_works_before_and_after_the_last_step(empty_dsn, pre_only):
    assert refusals(migrated(empty_dsn, pre_only=pre_only), SQL) == {}


#: What a release after this one brings: something new, and the end of something that this one needs.
NEXT = [
    Migration(f"{runner.newest() + 1:04}_pre_mine", "ALTER TABLE watermarks ADD COLUMN mine text", ""),
    Migration(f"{runner.newest() + 1:04}_post_mine", "DROP INDEX message_segments_age", ""),
]


@pytest.fixture
def next_release(monkeypatch):
    """Turn this code into that of the release after it."""
    all_migrations = [*runner.migrations(), *NEXT]
    monkeypatch.setattr(runner, "migrations", lambda: all_migrations)
    monkeypatch.setattr(runner, "RELEASE_BEGINS", NEXT[0].number)
    return NEXT


@pytest.fixture
def upgraded(empty_dsn, next_release):
    pre, _ = next_release
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        first_step(connection)
        assert connection.execute("SELECT max(name) FROM schema_migrations").fetchone() == (pre.name,)
        yield connection


def test_next_upgrade_removes_obsolete_objects(upgraded, monkeypatch):
    pre, post = NEXT
    assert runner.pending(upgraded) == [post]
    assert runner.due(upgraded) == []
    assert runner.migrate(upgraded, pre_only=True) == []  # an upgrade of this release to itself
    monkeypatch.setattr(runner, "RELEASE_BEGINS", pre.number + 1)
    assert runner.migrate(upgraded, pre_only=True) == [post.name]


@pytest.mark.usefixtures("next_release")
def test_where_no_code_can_be_older_nothing_waits(empty_dsn):
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        assert runner.migrate(connection, pre_only=True) == [migration.name for migration in runner.migrations()]


def test_outdated_code_is_refused(connection, monkeypatch):
    ended = []
    monkeypatch.setattr("os.kill", lambda *process: ended.append(process))
    end_if_outdated(connection)
    pre, post = (migration.name for migration in NEXT)
    connection.execute("INSERT INTO schema_migrations (name, checksum) VALUES (%s, '')", [pre])
    end_if_outdated(connection, 4711)
    assert ended == []
    connection.execute("INSERT INTO schema_migrations (name, checksum) VALUES (%s, '')", [post])
    with pytest.raises(OutdatedCodeError, match=f"{post} was applied, and this code knows those up to"):
        end_if_outdated(connection, 4711)
    assert ended == [(4711, signal.SIGTERM)]


def test_a_database_without_tables_refuses_no_code(empty_dsn):
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        end_if_outdated(connection)
