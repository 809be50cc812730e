from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpcore2
import pytest
import structlog

from support.forkserver import Forkserver

pytest_plugins = ["support.leftovers", "support.order"]

# Whoever starts the tests in the background lets them ignore SIGINT, and what they start inherits that: tests of Ctrl-C
# would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Postgres makes and removes thousands of small files. In memory, where there is room, that takes half of the time.
_MEMORY, _ROOM = Path("/dev/shm"), 8 << 30  # noqa: S108 - directories in it are made by tempfile
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

# Rich would show the values around each line of a traceback, and take a second for each.
*_PROCESSORS, _ = structlog.get_config()["processors"]
structlog.configure(
    processors=[*_PROCESSORS, structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
)

# Each HTTP client reads the trusted authorities, which takes 30 ms: a third of what some tests did.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)

# Modules and tests stay until the end: to search them for garbage again and again takes a third of the time to collect.
gc.set_threshold(50_000, 20, 100)


def pytest_collection_finish() -> None:
    gc.freeze()


@pytest.fixture(scope="session")
def forkserver() -> Iterator[Forkserver]:
    """Starts the Python processes of servers: a server of eleven takes 5 s of CPU with it, and 13 without."""
    with Forkserver() as forkserver:
        yield forkserver
