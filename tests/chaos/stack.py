"""The server of a chaos run: as `wakupush.devnet.stack` starts it, with more that can go wrong."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from psycopg.conninfo import make_conninfo

from support.relay import Relay
from support.resolver import Resolver
from wakupush.devnet.postgres import PostgresServer
from wakupush.devnet.processes import Process
from wakupush.devnet.stack import Stack

#: Settings by which Postgres remembers when each transaction was committed.
COMMIT_TIMES = {"track_commit_timestamp": "on"}
#: What of Postgres may get a disk of its own.
DISKS = ("data", "wal")
#: Bytes of a disk: so little memory holds what a run writes.
DISK_BYTES = 1 << 30


class Disk:
    """A file system of its own, in memory, which can be full.

    Args:
        directory: where it is mounted; made if missing.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._mount("-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs")

    def fill(self) -> None:
        """Let nothing more fit. What is on it grows while we look: the kernel refuses a size that is too small."""
        for attempt in range(10):
            status = os.statvfs(self._directory)
            used = (status.f_blocks - status.f_bfree) * status.f_frsize
            with suppress(subprocess.CalledProcessError):
                return self._mount("-o", f"remount,size={used + attempt * 65536}")
        raise OSError(f"{self._directory} grows too fast to be filled")

    def make_room(self) -> None:
        """Let it have all of its room again."""
        self._mount("-o", f"remount,size={DISK_BYTES}")

    def unmount(self) -> None:
        """Take it away, with what is on it."""
        subprocess.run(["umount", "--lazy", str(self._directory)], check=False)

    def _mount(self, *arguments: str) -> None:
        subprocess.run(["mount", *arguments, str(self._directory)], check=True)


class _Postgres(PostgresServer):
    """A Postgres that remembers when each transaction was committed, and whose write-ahead log has its own place."""

    def __init__(self, directory: Path, wal: Path | None = None) -> None:
        settings = COMMIT_TIMES | {"max_wal_size": "64MB", "min_wal_size": "32MB"}
        super().__init__(directory, fsync=False, settings=settings)
        self._wal = wal

    def _make_cluster(self) -> None:
        super()._make_cluster()
        link = self._cluster / "pg_wal"
        if self._wal is not None and not link.is_symlink():
            if self._run_as:
                os.chown(self._wal, *self._run_as)
            for file in link.iterdir():
                subprocess.run(["mv", str(file), str(self._wal)], check=True)
            link.rmdir()
            link.symlink_to(self._wal)


class ChaosStack(Stack):
    """A server whose connections lead through relays, whose clocks may be wrong and whose disks may be full.

    Its own tools, and those of the checker, reach Postgres directly.
    """

    def __post_init__(self) -> None:
        """Make the processes, which are not started yet."""
        self.disks: dict[str, Disk] = {}
        #: Names the parts for the processes of the server; None unless we are root, like the disks.
        self.resolver: Resolver | None = None
        self._clocks = self.directory / "clocks"
        self._clocks.mkdir(parents=True, exist_ok=True)
        super().__post_init__()

    def _make_parts(self, waku: Sequence[str]) -> None:
        super()._make_parts(waku)
        directory = self.directory / "postgres"
        with suppress(OSError, subprocess.CalledProcessError):  # only root may mount
            self.disks = {name: Disk(directory / name) for name in DISKS}
            self.resolver = Resolver()
            self._names = self.directory / "resolv.conf"
            self._names.write_text(f"nameserver {self.resolver.address}\noptions timeout:2 attempts:2\n")
        self.postgres = _Postgres(directory, directory / "wal" if self.disks else None)
        ports = {"postgres": self.postgres.port, "redis": self.redis.port, "gorush": self._ports["gorush"]}
        self.relays = {name: Relay(port) for name, port in ports.items()}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every process of the server; its connections lead through the relays."""
        return super().environment | {
            "WAKUPUSH_REDIS__URL": f"redis://{self._host('redis')}:{self.relays['redis'].port}/0",
            "WAKUPUSH_GORUSH__URL": f"http://{self._host('gorush')}:{self.relays['gorush'].port}",
        }

    def dsn_of(self, *command: str) -> str:
        """Return the connection string of a command of ``wakupush``."""
        dsn = super().dsn_of(*command)
        return make_conninfo(dsn, host=self._host("postgres"), port=self.relays["postgres"].port)

    def _host(self, part: str) -> str:
        return f"{part}.chaos.internal" if self.resolver else "127.0.0.1"

    def replace_postgres(self, other: PostgresServer) -> None:
        """Let another Postgres, which runs, take the place of one that was killed."""
        self.postgres = other  # type: ignore[assignment]
        self.relays["postgres"].target = other.port

    def set_clock(self, name: str, seconds: float) -> None:
        """Let the clock of a process be wrong by so many seconds; its name is that of its log file."""
        file = self._clocks / name
        new = file.with_suffix(".new")
        new.write_text(str(seconds))
        new.rename(file)

    def _wakupush(
        self,
        name: str,
        *arguments: str,
        module: str = "wakupush",
        settings: Mapping[str, str] | None = None,
        ready: Callable[[], bool] | None = None,
    ) -> Process:
        clock = name.replace(" ", "-")
        if not (self._clocks / clock).exists():
            self.set_clock(clock, 0.0)
        more = {"CHAOS_CLOCK": str(self._clocks / clock), "CHAOS_MODULE": module}
        process = super()._wakupush(
            name, *arguments, module="chaos.wrong_clock", settings={**(settings or {}), **more}, ready=ready
        )
        if self.resolver:
            script = f'mount --bind {self._names} /etc/resolv.conf && exec "$@"'
            process._command = ["unshare", "--mount", "sh", "-c", script, name, *process._command]
        return process

    def second_processes(self) -> list[Process]:
        """Return another beat and another reconcile, which are not started yet."""
        return [
            self._wakupush("second beat", "beat"),
            self._wakupush("second reconcile", "ingest", "reconcile", settings={"WAKUPUSH_HTTP_PORT": "-1"}),
        ]

    def stop(self) -> None:
        """Stop everything, and take away what it ran on."""
        super().stop()
        for relay in self.relays.values():
            relay.close()
        for disk in self.disks.values():
            disk.unmount()
        if self.resolver:
            self.resolver.close()
