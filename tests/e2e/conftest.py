"""The whole server as real processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.leftovers import kept
from wakupush.devnet.demo.stack import Stack


@contextmanager
def running_stack(**options: object) -> Iterator[Stack]:
    """Run a stack in a directory that Postgres' user can reach, which pytest's own cannot be."""
    directory = Path(tempfile.mkdtemp(prefix="wakupush-e2e-"))
    directory.chmod(0o755)
    try:
        with Stack(directory, fsync=False, **options) as stack:
            yield stack
        # Each process has its own role, whose rights `wakupush.model.roles` says: none may lack one.
        log = stack.postgres.log.read_text(errors="replace") if stack.postgres.log.exists() else ""
        assert [line for line in log.splitlines() if "permission denied" in line] == []
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def start_stack() -> Iterator[Callable[..., Stack]]:
    """Start a stack that runs until the end of the module."""
    with ExitStack() as exit_stack:
        yield kept(lambda **options: exit_stack.enter_context(running_stack(**options)))
