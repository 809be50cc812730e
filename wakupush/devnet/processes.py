"""Child processes that never outlive the process that started them.

Every child leads a session and process group of its own. A tiny shell watcher in that group blocks on a pipe whose
other end only the parent holds: when the parent stops the child, or dies in whatever way, the pipe closes and the
watcher kills the whole group. That works on Linux and macOS, for threads, and for children that change their user.
The watcher also keeps the group id in use, so that it is not given to processes of others.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Self

import httpx2

#: Starts a program in a session of its own that ends with ours; arguments as for `Process`, the log's folder exists.
Launcher = Callable[..., subprocess.Popen[bytes]]

_LOG_TAIL_LINES = 20
#: Ports below those that Linux and macOS give to outgoing connections.
_PORTS = range(10_000, 32_768)
_begin = os.getpid() * 7919 % len(_PORTS)
_in_turn: itertools.cycle[int] = itertools.cycle((*_PORTS[_begin:], *_PORTS[:_begin]))

# Standard input is the pipe. The watcher is forked twice, so that the program does not find a child it never started.
_WITH_WATCHER = 'exec 3<&0 </dev/null; ( (read line; kill -KILL 0) <&3 & ); exec "$@" 3<&-'


class StartFailedError(RuntimeError):
    """A child died, or was not ready in time, while it was being started; the text ends with the tail of its log."""


class WaitTimeoutError(TimeoutError):
    """A condition did not become true in time."""


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on right now, a different one each time.

    It is not one that systems give to outgoing connections: such a connection could take it before a server does. Two
    processes that ask at the same time also get different ports, because each begins elsewhere.
    """
    while True:
        port = next(_in_turn)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_until(predicate: Callable[[], bool], *, timeout: float, what: str, interval: float | None = None) -> None:
    """Block until ``predicate`` is true.

    Args:
        predicate: called again and again, at least once.
        timeout: seconds.
        what: the awaited event, for the error text.
        interval: seconds between two calls; None waits a tenth of the time since the first call, from 0.02 to 0.2.

    Raises:
        WaitTimeoutError: ``predicate`` was false for ``timeout`` seconds.
    """
    start = time.monotonic()
    while not predicate():
        seconds_waited = time.monotonic() - start
        if seconds_waited >= timeout:
            raise WaitTimeoutError(f"waited {timeout:g} s in vain: {what}")
        time.sleep(interval or min(max(seconds_waited / 10, 0.02), 0.2))


def answers_http(url: str) -> bool:
    """Return whether a GET of ``url`` is answered with 200 within a second."""
    try:
        # Without `verify=False` each call would read all authorities, for 20 ms; the address is an http:// one.
        return httpx2.get(url, timeout=1, trust_env=False, verify=False).status_code == HTTPStatus.OK
    except httpx2.RequestError:
        return False


class Process:
    """A child process with a log file; as a context manager it runs inside the block.

    Args:
        log: file that gets standard output and standard error, appended.
        env: the environment; None inherits ours.
        cwd: the working directory; None stays in ours.
        user: uid and gid to run as, which only root may set; None stays as we are.
        ready: returns whether the started program can be used; None takes a running program as ready.
        start_timeout: seconds until it must be ready.
        stop_signal: asks the program to end.
        grace: seconds between asking and SIGKILL.
        launcher: starts the program; None starts it as `user`, through a shell that watches for our end.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: tuple[int, int] | None = None,
        ready: Callable[[], bool] | None = None,
        start_timeout: float = 120.0,
        stop_signal: signal.Signals = signal.SIGTERM,
        grace: float = 10.0,
        launcher: Launcher | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._env = env
        self._cwd = cwd
        self._user = user
        self._ready = ready
        self._start_timeout = start_timeout
        self._stop_signal = stop_signal
        self._grace = grace
        self._launcher = launcher or self._popen
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """Process and group id of the running child, else None."""
        return self._child.pid if self._child and self.running else None

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start the child and wait until it is ready; nothing happens if it is running.

        Raises:
            StartFailedError: it ended, or was not ready within the start timeout; it is not running then.
        """
        if self.running:
            return
        self.launch()
        try:
            wait_until(self._ready_or_dead, timeout=self._start_timeout, what=f"{self.name} is ready")
        except WaitTimeoutError as error:
            self.kill()
            raise StartFailedError(f"{error}\n{self.log_tail()}") from error
        if not self.running:
            raise StartFailedError(f"{self.name} ended with {self.wait()} while starting\n{self.log_tail()}")

    def launch(self) -> None:
        """Start the child without waiting for it; nothing happens if it is running."""
        if self.running:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self._log_start = self.log.stat().st_size
        self._child = self._launcher(self._command, log=self.log, env=self._env, cwd=self._cwd)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of a child that was started.

        Args:
            timeout: seconds, None for ever.

        Returns:
            Its exit status, negative for the signal that ended it.

        Raises:
            WaitTimeoutError: it goes on.
        """
        if self._child is None:
            raise RuntimeError(f"{self.name} was never started")
        try:
            status = self._child.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise WaitTimeoutError(f"{self.name} did not end within {timeout} s") from error
        self._release()
        return status

    def stop(self) -> None:
        """Ask the child to end and SIGKILL its group after the grace; nothing happens if it is not running."""
        if self._child is None:
            return
        if self.running:
            self._child.send_signal(self._stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(self._grace)
        self._release()
        self._child.wait()

    def kill(self) -> None:
        """SIGKILL the child and its group at once, as a crash would; nothing happens if it is not running."""
        if self._child is not None:
            self._child.kill()
            self._release()
            self._child.wait()

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def has_logged(self, text: str) -> bool:
        """Return whether the child has written ``text`` to its log since it was last started."""
        return text.encode() in self.log.read_bytes()[self._log_start :]

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:] if self.log.exists() else []
        return "\n".join([f"last lines of {self.log}:", *(lines or ["(empty)"])])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _ready_or_dead(self) -> bool:
        return not self.running or self._ready is None or self._ready()

    def _popen(
        self, command: list[str], *, log: Path, env: Mapping[str, str] | None, cwd: Path | None
    ) -> subprocess.Popen[bytes]:
        uid, gid = self._user or (None, None)
        with log.open("ab") as output:
            return subprocess.Popen(
                ["/bin/sh", "-c", _WITH_WATCHER, self.name, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
                user=uid,
                group=gid,
                extra_groups=None if self._user is None else [],
            )

    def _release(self) -> None:
        """Let the watcher kill the rest of the group."""
        if self._child is not None and self._child.stdin is not None:
            self._child.stdin.close()


def unprivileged_user() -> tuple[int, int] | None:
    """Return uid and gid of an existing unprivileged user if we are root, else None: no change is needed."""
    if os.geteuid() != 0:
        return None
    import pwd  # noqa: PLC0415 - Unix only, and so is being root

    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return entry.pw_uid, entry.pw_gid
