"""A hot standby of a Postgres: what a failover goes to."""

import os
from pathlib import Path

import psycopg

from wakupush.devnet.parts.postgres import PostgresServer, _run


class Replica(PostgresServer):
    """A synchronous replica of a running Postgres. It takes no writes until it is promoted.

    Args:
        directory: as for `PostgresServer`.
        primary: which it is a copy of from its start on.
    """

    def __init__(self, directory: Path, primary: PostgresServer) -> None:
        super().__init__(directory, fsync=False)
        self._primary = primary

    def start(self) -> None:
        """Copy the primary, follow it, and let it commit nothing any more that the replica does not have."""
        super().start()
        with psycopg.connect(self._primary.dsn, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            connection.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Make it a primary."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def _make_cluster(self) -> None:
        if self._cluster.exists():
            return
        self._cluster.parent.mkdir(parents=True, exist_ok=True)
        if self._run_as:
            os.chown(self._cluster.parent, *self._run_as)
        copy = [str(self._programs / "pg_basebackup"), "-d", self._primary.dsn, "-D", str(self._cluster), "-R"]
        result = _run([*copy, "--checkpoint=fast", "--no-sync"], self._run_as)
        assert result.returncode == 0, result.stdout
