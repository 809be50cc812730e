"""Bringing the schema up to date; safe when several start at once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final, LiteralString

from psycopg import Connection

from wakupush.postgres import roles
from wakupush.runtime.usage import UsageError

#: Key of the advisory lock that lets one migration run at a time ("wakupush" in ASCII).
LOCK = 0x77616B7570757368
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


class MigrationError(UsageError):
    """The database cannot be brought up to date; the text says what to do."""


class ChangedMigrationError(MigrationError):
    """The text of an applied migration has changed: the database and the code have drifted apart."""


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
    connection.execute("SELECT pg_advisory_lock(%s)", [LOCK])
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations ("
            " name text PRIMARY KEY, checksum text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        to_apply = due(connection) if pre_only else pending(connection)
        for migration in to_apply:
            with connection.transaction():
                connection.execute(migration.sql)
                connection.execute(
                    "INSERT INTO schema_migrations (name, checksum) VALUES (%s, %s)",
                    [migration.name, migration.checksum],
                )
        roles.apply(connection, exact=not pre_only)
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", [LOCK])
    return [migration.name for migration in to_apply]
