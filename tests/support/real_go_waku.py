"""A real go-waku on loopback, whose binary WAKUPUSH_TEST_WAKU names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.go_waku import OTHER_SHARD, SHARD
from wakupush.devnet.processes import answers_http, free_port, wait_until

BINARY = os.environ.get("WAKUPUSH_TEST_WAKU")


@contextmanager
def real_go_waku(directory: Path, *flags: str, least_peers: int = 0) -> Iterator[str]:
    """Run a node that has joined both shards, and publishes if it has so many peers; yield its URL."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [
        *(BINARY, "--address=127.0.0.1", "--ext-ip=127.0.0.1", f"--tcp-port={free_port()}", "--cluster-id=16"),
        *("--nat=none", "--relay", f"--pubsub-topic={SHARD}", f"--pubsub-topic={OTHER_SHARD}"),
        *("--ip-colocation-limit=0", f"--min-relay-peers-to-publish={least_peers}", "--log-level=ERROR"),
        *("--rest", "--rest-address=127.0.0.1", f"--rest-port={port}"),
        *flags,
    ]
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers_http(f"{url}/debug/v1/info"), timeout=120, what="go-waku answers")
        yield url
    finally:
        process.kill()
        process.wait()
