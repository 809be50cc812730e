"""Running the whole server, and Waku nodes beside it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx2
from redis import Redis

from support.devnet import serving
from support.forkserver import Forkserver
from wakupush.devnet.processes import Process
from wakupush.devnet.stack import SHARDS, Stack

#: Forty polls a second of an idle server add up where several tests run.
UNHURRIED = {"WAKUPUSH_INGEST__POLL_INTERVAL": "0.2"}


@contextmanager
def running_stack(kind: type[Stack] = Stack, **options: object) -> Iterator[Stack]:
    """Run a stack in a directory that Postgres' user can reach, which pytest's own cannot be."""
    directory = Path(tempfile.mkdtemp(prefix="wakupush-e2e-"))
    directory.chmod(0o755)
    try:
        with kind(directory, fsync=False, defaults=UNHURRIED, **options) as stack:
            yield stack
            assert stack.external.redis_url or refused_by_redis(stack) == []
        # Each process has its own role, whose rights `wakupush/postgres/grants/` says: none may lack one.
        log = stack.postgres.log.read_text(errors="replace") if stack.postgres.log.exists() else ""
        assert [line for line in log.splitlines() if "permission denied" in line] == []
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def refused_by_redis(stack: Stack) -> list[tuple[str, str, str]]:
    """Return which users were refused what: each process has its own user, whose rights `wakupush.redis.users` has."""
    if not stack.redis.running:
        return []
    with Redis.from_url(stack.redis.url, decode_responses=True) as redis:
        refusals = {(entry["username"], entry["reason"], entry["object"]) for entry in redis.acl_log()}
    # redis-py names itself and asks for notices of maintenance; a refusal changes nothing.
    return sorted(each for each in refusals if not each[2].startswith("client"))


def wakupush(environment: Mapping[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the server, and return its exit code and what it printed."""
    command = [sys.executable, "-m", "wakupush", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


@contextmanager
def running_node(stack: Stack, manners: str, log: Path, forkserver: Forkserver) -> Iterator[tuple[str, Process]]:
    """Run a node that is a peer of the server's; return its URL and its process."""
    options = ("--manners", manners, "--shard", SHARDS[0], "--peer", stack.node_url)
    with serving("waku", log, *options, forkserver=forkserver) as (url, process):
        httpx2.post(f"{stack.node_url}/dev/peers", json={"url": url}).raise_for_status()
        yield url, process
