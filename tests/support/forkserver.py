"""A Python that has imported what the processes of a server import, and forks them, so that tests start them fast.

A forked process is what ``python -m`` would have started, with its own environment, session, group and log. But ``ps``
shows the command of the forkserver, and variables that Python or a library reads while it is loaded, such as
PYTHONHASHSEED, are those of the forkserver; PYTHONPATH is heeded.

Two file descriptors go to the forkserver for each process: a connection, on which it answers with the process
identifier and later with the exit status, and the reading end of the pipe that the process's watcher blocks on.
"""

from __future__ import annotations

import gc
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Self

#: What most processes import and what takes long. Nothing here may import prometheus_client, which reads its
#: environment when it is imported.
PRELOADED = (
    *("aiohttp", "celery.app.amqp", "celery.apps.beat", "celery.apps.worker", "celery.concurrency.prefork"),
    *("celery.worker.autoscale", "coincurve", "cryptography.x509", "httptools", "httpx2", "kombu.transport.redis"),
    *("opentelemetry.sdk.trace", "psycopg_pool", "redis.asyncio", "starlette.applications", "structlog", "tenacity"),
    *("typer.main", "uvicorn", "wakupush.protocol.keys", "wakupush.runtime.settings"),
)
#: Where Python finds this module.
_TESTS = Path(__file__).parents[1]
_WATCHER = "exec 3<&0 </dev/null; (read line; kill -KILL 0) <&3 &"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A process to be forked: its module with arguments, log, environment and working directory."""

    argv: list[str]
    log: str
    env: dict[str, str] = field(repr=False)
    cwd: str


class Forkserver:
    """Forks Python processes, from whichever thread it is asked; the end of it is the end of them."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            path = os.pathsep.join([str(_TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.forkserver"],
                stdin=theirs.fileno(),
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )

    def fork(self, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None, cwd: Path | None) -> Forked:
        """Start a Python module in a process of its own.

        Args:
            command: ``[sys.executable, "-m", module, *arguments]``.
            log: file that gets standard output and standard error, appended.
            env: the environment; None inherits ours.
            cwd: the working directory; None stays in ours.

        Raises:
            OSError: the forkserver has ended.
        """
        request = _Request(
            argv=[*command[2:]], log=str(log.absolute()), env=dict(env or os.environ), cwd=str(cwd or Path.cwd())
        )
        ours, theirs = Pipe()
        write_end, read_end = os.pipe()
        try:
            with theirs:
                socket.send_fds(self._control, [b"."], [theirs.fileno(), write_end])
            ours.send(request)
            return Forked(command, ours.recv(), ours, read_end)
        except (OSError, EOFError) as error:
            ours.close()
            os.close(read_end)
            raise ConnectionResetError("the forkserver has ended") from error
        finally:
            os.close(write_end)

    def close(self) -> None:
        """End the forkserver."""
        self._control.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Forked:
    """A forked process, with what `Process` uses of `subprocess.Popen`."""

    def __init__(self, args: Sequence[str], pid: int, answers: Connection, watched: int) -> None:
        self.args = list(args)
        self.pid = pid
        #: The pipe that the process's watcher blocks on.
        self.stdin = os.fdopen(watched, "wb", buffering=0)
        self._answers = answers
        self._lock = threading.Lock()
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, negative for the signal that ended it, or None while it runs."""
        with self._lock:
            if self._status is None and self._answers.poll():
                try:
                    self._status = self._answers.recv()
                except EOFError:  # The forkserver was killed, and could not say more: nobody else would.
                    self.stdin.close()
                    self._status = -signal.SIGKILL
            return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status.

        Args:
            timeout: seconds, None for ever.

        Raises:
            subprocess.TimeoutExpired: it goes on.
        """
        self._answers.poll(timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return status

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL it; nothing happens if it has ended."""
        self.send_signal(signal.SIGKILL)


def main() -> None:
    """Serve the socket that is standard input until the other end of it is closed."""
    for name in PRELOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    if child := _serve(socket.socket(fileno=os.dup(0))):
        _run(*child)


def _serve(control: socket.socket) -> tuple[Connection, int] | None:
    """Fork for whoever asks; return in each forked process what it was asked for by, and None in the end."""
    running: dict[int, Connection] = {}
    with ExitStack() as ours:
        end, wakeup = map(ours.enter_context, socket.socketpair())
        wakeup.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno())
        ours.callback(signal.set_wakeup_fd, -1)
        ours.callback(signal.signal, signal.SIGCHLD, signal.signal(signal.SIGCHLD, lambda *_: None))
        requests = ours.enter_context(selectors.DefaultSelector())
        for stream in (ours.enter_context(control), end):
            requests.register(stream, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in requests.select()}
            if end in ready:
                end.recv(4096)
                _tell_ends(running)
            if control not in ready:
                continue
            _, descriptors, *_ = socket.recv_fds(control, 1, 2)
            if not descriptors:
                return None
            answers, watch = Connection(descriptors[0]), descriptors[1]
            if (pid := os.fork()) == 0:
                for other in running.values():
                    other.close()
                return answers, watch
            os.close(watch)
            with suppress(OSError):
                answers.send(pid)
            running[pid] = answers


def _tell_ends(running: dict[int, Connection]) -> None:
    """Tell the exit status of each process that has ended to whoever asked for it."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with running.pop(pid) as answers, suppress(OSError):
            answers.send(os.waitstatus_to_exitcode(status))


def _run(answers: Connection, watch: int) -> None:
    """Become what was asked for."""
    with answers:
        request: _Request = answers.recv()
    os.setsid()
    subprocess.run(["/bin/sh", "-c", _WATCHER], stdin=watch, check=True)
    os.close(watch)
    log = os.open(request.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(null)
    os.chdir(request.cwd)
    ours, theirs = (
        [folder for folder in environment.get("PYTHONPATH", "").split(os.pathsep) if folder]
        for environment in (os.environ, request.env)
    )
    sys.path[: 1 + len(ours)] = [request.cwd, *theirs]
    os.environ.clear()
    os.environ.update(request.env)
    sys.argv = request.argv
    runpy.run_module(request.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
