"""Copies of a Postgres: what a failover, or a restore, goes to."""

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import psycopg

from wakupush.devnet.postgres import PostgresServer, _run


class Backup(PostgresServer):
    """A copy of a running Postgres as it is when it is taken; it starts as a primary of its own.

    Args:
        directory: as for `PostgresServer`.
        primary_dsn: of which it is a copy.
        settings: of Postgres; those of the primary.
    """

    _options = ("--checkpoint=fast", "--no-sync")

    def __init__(self, directory: Path, primary_dsn: str, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(directory, fsync=False, settings=settings)
        self._primary_dsn = primary_dsn

    def take(self) -> None:
        """Copy the primary, unless that was done before."""
        self._make_cluster()

    def _make_cluster(self) -> None:
        if self._cluster.exists():
            return
        self._cluster.parent.mkdir(parents=True, exist_ok=True)
        if self._run_as:
            os.chown(self._cluster.parent, *self._run_as)
        copy = [str(self._programs / "pg_basebackup"), "-d", self._primary_dsn, "-D", str(self._cluster)]
        result = _run([*copy, *self._options], self._run_as)
        assert result.returncode == 0, result.stdout


class Replica(Backup):
    """A replica of a running Postgres from its start on. It takes no writes until it is promoted."""

    _options = (*Backup._options, "-R")

    def make_synchronous(self) -> None:
        """Let the primary commit nothing any more that the replica does not have."""
        with psycopg.connect(self._primary_dsn, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Make it a primary."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")  # waits for it
