"""The clock of all processes, which libfaketime reads from a file, and how it moves."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from chaos.traffic import PYTHONPATH
from wakupush.devnet.processes import wait_until
from wakupush.devnet.stack import Stack

DAY = 86_400.0
_FILE = "FAKETIME_TIMESTAMP_FILE"
_VARIABLES = {
    # Only the calendar jumps. Debian's library would also take the waits of Python's interpreter lock for such of the
    # calendar, and threads would hardly run.
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    "FAKETIME_CACHE_DURATION": "1",
    # Python would compile every module anew: its file would have another age.
    "NO_FAKE_STAT": "1",
    "PYTHONPATH": f"{PYTHONPATH}{os.pathsep}{Path(__file__).parent / 'preload'}",
}
#: Seconds after which a process that was suspended reads the file again: the cache counts whole ones.
_CACHE_SECONDS = 2.1


def library() -> Path | None:
    """Return the library of Debian's package `faketime`; None if it is not installed."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def begin(directory: Path) -> None:
    """Start this program again with a clock that can move; its file is in the directory.

    Raises:
        SystemExit: the library is missing.
    """
    library_path = library()
    if library_path is None:
        sys.exit("make year needs libfaketime: install Debian's package faketime")
    file = directory / "clock"
    file.write_text("+0\n")
    variables = {"LD_PRELOAD": str(library_path), _FILE: str(file), **_VARIABLES}
    os.execve(sys.executable, sys.orig_argv, os.environ | variables)  # noqa: S606 - no shell is needed


def directory() -> Path | None:
    """Return the directory of the clock's file; None if this process has the machine's clock."""
    return Path(os.environ[_FILE]).parent if _FILE in os.environ else None


def environment() -> dict[str, str]:
    """Return the variables that give a process this clock."""
    # The library shares a semaphore with children, which those of another user cannot open.
    os.environ.pop("FAKETIME_SHARED", None)
    return {name: os.environ[name] for name in ("LD_PRELOAD", _FILE, *_VARIABLES)}


def move(stack: Stack, days: int) -> None:
    """Move the clock to so many days after the beginning, while nothing runs: Postgres and beat start anew.

    Backends that stay open over a jump would lose their statement time-outs.
    """
    stack.beat.stop()
    with _suspended(stack):
        stack.postgres.stop()
        before = time.time()
        Path(os.environ[_FILE]).write_text(f"+{days * DAY:.0f}\n")
        start = time.monotonic()
        # What starts now reads the file at once.
        stack.postgres.start()
        stack.beat.launch()
        time.sleep(max(0.0, start + _CACHE_SECONDS - time.monotonic()))
        wait_until(lambda: time.time() > before + DAY / 2, timeout=10, what="the clock moves")


@contextmanager
def _suspended(stack: Stack) -> Iterator[None]:
    """Suspend every process of a stack but Postgres."""
    groups = [process.pid for process in stack.processes if process is not stack.postgres and process.pid]
    for group in groups:
        os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        for group in groups:
            os.killpg(group, signal.SIGCONT)


def sweep() -> None:
    """Remove what the library leaves in memory of processes that were killed, and of this one."""
    for file in Path("/dev/shm").glob("*faketime_*"):  # noqa: S108 - where the library puts it
        with suppress(ValueError, OSError):
            pid = int(file.name.rpartition("_")[2])
            if pid == os.getpid() or not psutil.pid_exists(pid):
                file.unlink()
