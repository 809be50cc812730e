"""Bringing the schema up to date; safe when several start at once."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from typing import Final, LiteralString, TypeVar, cast

import structlog
from psycopg import Connection, errors

from wakupush.postgres import roles
from wakupush.runtime.usage import UsageError

#: Key of the advisory lock that lets one migration run at a time ("wakupush" in ASCII).
LOCK = 0x77616B7570757368
#: Seconds for which a migration waits for each lock: while it waits, all others wait behind it.
LOCK_SECONDS: Final = 3.0
#: How often a migration tries to get its locks, and the seconds between two tries, in which others work.
TRIES: Final = 20
PAUSE_SECONDS: Final = 5.0
#: First line of a migration of indexes that are built, one after the other, while others write.
CONCURRENT: Final = "-- Each statement is a transaction.\n"
_INDEX: Final = re.compile(r"CREATE INDEX CONCURRENTLY IF NOT EXISTS (\w+) ON [^;]+")
#: Who has used a table for longer than some seconds. Postgres shows ages of foreign sessions to administrators only.
_HOLDERS: Final = """
    SELECT pid, usename, application_name, round(extract(epoch FROM clock_timestamp() - xact_start))::integer,
        string_agg(DISTINCT relname, ', ' ORDER BY relname)
    FROM pg_locks JOIN pg_stat_activity USING (pid) JOIN pg_class ON pg_class.oid = relation
    WHERE granted AND relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
        AND datname = current_database() AND pid <> pg_backend_pid()
        AND coalesce(xact_start < clock_timestamp() - %s * interval '1 second', true)
    GROUP BY 1, 2, 3, xact_start
    ORDER BY xact_start
    LIMIT 5
"""
_INVALID: Final = """
    SELECT EXISTS (
        SELECT FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
        WHERE relnamespace = current_schema()::regnamespace AND relname = %s AND NOT indisvalid
    )
"""

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

Result = TypeVar("Result")
#: Number of the first migration that is not in the previous release: while this release is rolled out, code may run
#: that does not know the migrations from here on.
RELEASE_BEGINS: Final = 101
#: Number of the migration with which a schema begins.
FIRST: Final = 100


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of SQL."""

    #: For example ``0100_pre_initial``.
    name: str
    sql: LiteralString
    #: SHA-256 of the text, hex.
    checksum: str

    @property
    def number(self) -> int:
        """Its place in the order; a `pre` and a `post` migration of one change share it."""
        return int(self.name.split("_")[0])

    @property
    def is_post(self) -> bool:
        """Whether it removes something that older code needs: then no older code may run any more."""
        return "_post_" in self.name

    @property
    def is_concurrent(self) -> bool:
        """Whether it builds indexes while others write."""
        return self.sql.startswith(CONCURRENT)

    @property
    def statements(self) -> list[LiteralString]:
        """What is executed at once: all of it, or each index that is built while others write."""
        if not self.is_concurrent:
            return [self.sql]
        text = re.sub("--.*", "", self.sql)
        return [statement.strip() for statement in text.split(";") if statement.strip()]


class MigrationError(UsageError):
    """The database cannot be brought up to date; the text says what to do."""


class ChangedMigrationError(MigrationError):
    """The text of an applied migration has changed: the database and the code have drifted apart."""


class BlockedError(MigrationError):
    """Other transactions use a table all the time; the text names them."""


class TooOldDatabaseError(MigrationError):
    """An alpha version made the database, and no migration leads from there."""


@cache
def migrations() -> list[Migration]:
    """Return all migrations in their order: by number, and of one number the `pre` migration before the `post` one."""
    files = [file for file in resources.files(__package__).iterdir() if file.name.endswith(".sql")]
    result = [_migration(file.name.removesuffix(".sql"), file.read_text()) for file in files]
    return sorted(result, key=lambda migration: (migration.number, migration.is_post, migration.name))


def newest() -> int:
    """Return the number of the newest migration that this code knows."""
    return migrations()[-1].number


def _migration(name: str, text: str) -> Migration:
    return Migration(name, text, hashlib.sha256(text.encode()).hexdigest())


def pending(connection: Connection) -> list[Migration]:
    """Return the pending migrations.

    Raises:
        MigrationError: see its subclasses.
    """
    exists = connection.execute("SELECT to_regclass('schema_migrations') IS NOT NULL").fetchone()
    checksums: dict[str, str] = {}
    if exists is not None and exists[0]:
        checksums = dict(connection.execute("SELECT name, checksum FROM schema_migrations").fetchall())
    if alpha := [name for name in checksums if int(name.split("_")[0]) < FIRST]:
        raise TooOldDatabaseError(
            f"an alpha version of wakupush made this database (its last migration is {max(alpha)}), and there is no"
            " upgrade from it: write its registrations to a file with `wakupush export reference` of that version, and"
            " take them into a new, empty database with `wakupush import reference` of this one"
        )
    for migration in migrations():
        if checksums.get(migration.name, migration.checksum) != migration.checksum:
            raise ChangedMigrationError(
                f"migration {migration.name} was applied with another text: restore the file, or write a new one"
            )
    return [migration for migration in migrations() if migration.name not in checksums]


def due(connection: Connection) -> list[Migration]:
    """Return the pending migrations that may be applied while code of the previous release still runs.

    A database without tables has no such code.

    Raises:
        MigrationError: see its subclasses.
    """
    migrations_left = pending(connection)
    if len(migrations_left) == len(migrations()):
        return migrations_left
    return [migration for migration in migrations_left if not migration.is_post or migration.number < RELEASE_BEGINS]


def migrate(connection: Connection, *, pre_only: bool = False) -> list[str]:
    """Apply pending migrations, grant each role its rights, and return the names of the migrations.

    Other processes that start at the same time wait, then find nothing to do.

    Args:
        connection: in autocommit mode.
        pre_only: only what is due.

    Raises:
        MigrationError: see its subclasses.
    """
    _lock(connection)
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations ("
            " name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        to_apply = due(connection) if pre_only else pending(connection)
        for migration in to_apply:
            wait_for_locks(connection, f"migration {migration.name}", partial(apply, connection, migration))
        wait_for_locks(connection, "granting rights", partial(roles.apply, connection, exact=not pre_only))
    finally:
        # Else an error that says so would hide why it is closed.
        if not connection.closed:
            connection.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
    return [migration.name for migration in to_apply]


def _lock(connection: Connection) -> None:
    """Wait until no other migration runs. It looks again and again: an index waits for all statements that wait."""
    while connection.execute("SELECT pg_try_advisory_lock(%s)", [LOCK]).fetchone() != (True,):
        time.sleep(0.2)


def wait_for_locks(connection: Connection, what: str, work: Callable[[], Result]) -> Result:
    """Do some work on the schema, which waits shortly for each lock, again and again until it gets its locks.

    It takes them in another order than workers do, so it may also be the one that Postgres ends for a deadlock.

    Args:
        connection: in autocommit mode.
        what: the work, for the error and the log.

    Raises:
        BlockedError: others held a lock each time.
    """
    for number in range(1, TRIES + 1):
        try:
            return work()
        except (errors.LockNotAvailable, errors.DeadlockDetected):
            holders = _holders(connection)
            log.warning("migration_blocked", work=what, holders=holders, tries=number)
        if number < TRIES:
            time.sleep(PAUSE_SECONDS)
    raise BlockedError(
        f"{what} waited {TRIES} times for a lock that others hold, and gave up so that nobody waits behind it."
        f" {holders or 'They are gone now'}: end them, or wait until they are done, and run it again"
    )


def _holders(connection: Connection) -> str:
    rows = connection.execute(_HOLDERS, [LOCK_SECONDS / 2]).fetchall()
    return "; ".join(
        f"process {pid} ({user}, {application or 'without application_name'}"
        f"{'' if age is None else f', for {age} s'}) uses {tables}"
        for pid, user, application, age, tables in rows
    )


def apply(connection: Connection, migration: Migration) -> None:
    """Apply a migration and note it.

    One that builds indexes while others write goes on where it was killed: Postgres leaves the index that was being
    built invalid, and it is built again. Such an index waits for every transaction that began before it, and nobody
    waits for the index.

    Args:
        connection: in autocommit mode.

    Raises:
        LockNotAvailable: another transaction uses a table for longer than `LOCK_SECONDS`.
    """
    if migration.is_concurrent:
        _build_indexes(connection, migration)
    with connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {1000 * LOCK_SECONDS:.0f}")
        connection.execute("SET LOCAL statement_timeout = 0")
        if not migration.is_concurrent:
            connection.execute(migration.sql)
        connection.execute(
            "INSERT INTO schema_migrations (name, checksum) VALUES (%s, %s)", [migration.name, migration.checksum]
        )


def _build_indexes(connection: Connection, migration: Migration) -> None:
    connection.execute("SET statement_timeout = 0")
    connection.execute("SET lock_timeout = 0")
    try:
        for statement in migration.statements:
            index = cast("re.Match[str]", _INDEX.fullmatch(statement))[1]
            if connection.execute(_INVALID, [index]).fetchone() == (True,):
                connection.execute(f"DROP INDEX CONCURRENTLY {index}")
            if holders := _holders(connection):
                log.info("index_waits", index=index, holders=holders)
            connection.execute(statement)
    finally:
        if not connection.closed:
            connection.execute("RESET statement_timeout")
            connection.execute("RESET lock_timeout")
