"""A PgBouncer of Debian in front of a Postgres, which hands its connections out for a transaction each."""

import os
import pwd
import shutil
from pathlib import Path

import psycopg

from wakupush.devnet.postgres import PostgresServer
from wakupush.devnet.processes import Process, free_port

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
#: Fewer connections to Postgres than clients have, so that transactions of one client go over several of them.
POOL_SIZE = 3


class PgBouncer(Process):
    """Like a server's of an operator, it knows no startup parameter but its own.

    Args:
        directory: open to others, as every folder above it.
        postgres: what it is in front of; all of its databases can be reached.
        users: who may connect, without a password.
    """

    def __init__(self, directory: Path, postgres: PostgresServer, users: list[str]) -> None:
        self.port = free_port()
        self._login = users[0]
        logins = directory / "users.txt"
        logins.write_text("".join(f'"{user}" ""\n' for user in users))
        config = directory / "pgbouncer.ini"
        config.write_text(f"""
[databases]
* = host=127.0.0.1 port={postgres.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {logins}
pool_mode = transaction
default_pool_size = {POOL_SIZE}
max_client_conn = 200
""")
        account = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        super().__init__(
            "pgbouncer",
            [str(PROGRAM), str(config)],
            log=directory / "pgbouncer.log",
            cwd=Path("/"),
            user=account and (account.pw_uid, account.pw_gid),
            ready=self._answers,
            grace=10.0,
        )

    def dsn(self, database: str, user: str | None = None) -> str:
        """Address of a database behind it."""
        return f"postgresql://{user or self._login}@127.0.0.1:{self.port}/{database}"

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True
