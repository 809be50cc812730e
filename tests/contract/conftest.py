from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette

from wakupush.devnet.processes import wait_until


@pytest.fixture(scope="session")
def _server_threads() -> Iterator[list[threading.Thread]]:
    """Wait for servers at the very end only: the last fifth of a second of a uvicorn would be most of a test."""
    threads: list[threading.Thread] = []
    yield threads
    for thread in threads:
        thread.join()


@pytest.fixture
def serve(_server_threads: list[threading.Thread]) -> Iterator[Callable[[Starlette], httpx2.Client]]:
    """Return a function that serves an app until the test is over and returns a client to it.

    It is real HTTP, as percent-encoded paths, connections and their ends matter here.
    """
    with contextlib.ExitStack() as stack:

        def start(app: Starlette) -> httpx2.Client:
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            config = uvicorn.Config(
                app, http="httptools", lifespan="off", log_level="critical", timeout_graceful_shutdown=1
            )
            server = uvicorn.Server(config)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener.dup()]})
            thread.start()
            _server_threads.append(thread)
            stack.callback(setattr, server, "should_exit", True)
            wait_until(lambda: server.started, timeout=60, interval=0.002, what="uvicorn has started")
            return stack.enter_context(httpx2.Client(base_url=url, timeout=60))

        yield start
