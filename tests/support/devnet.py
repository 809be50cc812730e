"""Single programs of the devnet, each in a process of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.forkserver import Forkserver
from wakupush.devnet.processes import Process, answers_http, free_port

READY = {"waku": "/debug/v1/info", "gorush": "/healthz"}


@contextmanager
def serving(
    name: str, log: Path, *options: str, port: int | None = None, forkserver: Forkserver | None = None
) -> Iterator[tuple[str, Process]]:
    """Run a development Waku node or gorush; return its URL and its process."""
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "wakupush.devnet.serve", name, "--port", str(port), *options]
    ready = url + READY[name]
    launcher = forkserver and forkserver.fork
    with Process(name, command, log=log, ready=lambda: answers_http(ready), launcher=launcher) as process:
        yield url, process
