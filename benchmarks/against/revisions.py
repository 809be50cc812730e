"""Servers of this revision and of another one, each run by its own interpreter."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.running import Bench, makers
from wakupush.devnet.stack import Stack
from wakupush.protocol.keys import PrivateKey


@dataclass(frozen=True)
class Part:
    """A process of a server."""

    name: str
    pid: int


@dataclass(frozen=True)
class Served:
    """A running server, as far as benchmarks need a `Stack`."""

    key: PrivateKey
    node_url: str
    gorush_url: str
    postgres_dsn: str
    redis_url: str
    processes: list[Part]

    def connect(self) -> psycopg.Connection:
        """Return a connection to Postgres, in autocommit mode."""
        return psycopg.connect(self.postgres_dsn, autocommit=True)


@contextmanager
def serving(root: Path, concurrency: int) -> Iterator[Bench]:
    """Run the server of a checkout beside a node and a gorush of this one, with its defaults.

    Args:
        root: of the checkout.
        concurrency: processes of each pool.
    """
    with tempfile.TemporaryDirectory(prefix="wakupush-against-") as name, makers() as pool:
        parts = Stack(Path(name))
        with (
            parts.node,
            parts.gorush,
            _child(root, parts, concurrency) as served,
            closing(Bench(served, pool)) as bench,
        ):
            yield bench


@contextmanager
def _child(root: Path, parts: Stack, concurrency: int) -> Iterator[Served]:
    options = {
        "key": parts.key.secret.hex(),
        "waku_url": parts.node_url,
        "gorush_url": parts.gorush_url,
        "concurrency": concurrency,
        "settings": {},
    }
    # -P: the folder of the script is not one to import from.
    command = [root / ".venv" / "bin" / "python", "-P", Path(__file__).with_name("served.py")]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            child.stdin.write(json.dumps(options) + "\n")
            child.stdin.flush()
            line = child.stdout.readline()
            if not line:
                raise RuntimeError(f"the server of {root} did not start")
            facts = json.loads(line)
            processes = [Part(name, pid) for name, pid in facts["pids"].items()]
            yield Served(
                parts.key, parts.node_url, parts.gorush_url, facts["postgres_dsn"], facts["redis_url"], processes
            )
        finally:
            child.stdin.close()
