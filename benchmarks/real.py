"""`python -m benchmarks.real`: sends the same messages through a real go-waku and gorush, and the development ones.

go-waku has no peers: what is published there comes back as from the network. gorush's way to Apple ends at a closed
port, because no real device may be pushed to. So each notification is tried once and becomes a dead letter: posts and
outcomes are measured, and not Apple.

Binaries come from --waku and --gorush, or from WAKUPUSH_TEST_WAKU and WAKUPUSH_TEST_GORUSH. Exits with 2 without them.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from urllib.parse import quote

import httpx2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from psycopg import Connection
from redis import Redis
from rich.console import Console
from rich.table import Table

from benchmarks import made, topic_keys
from benchmarks.made import SHARD, Made
from benchmarks.rest import handled, queued_and_stored
from benchmarks.running import UNLIMITED, Bench, cpu, end_on_signals, idle_cpu, makers, relay, suspended
from wakupush.devnet.demo.stack import SHARDS, External, Stack
from wakupush.devnet.parts.processes import Process, answers_http, free_port, wait_until

#: More than waits in the node at once.
CACHE_CAPACITY = 20_000
#: Users for whom others ask.
ASKED = 20
#: Seconds until all that was sent must be done.
PATIENCE = 120.0
#: Each notification is tried once, and the breaker never opens.
ONCE = {"WAKUPUSH_DELIVERY__MAX_ATTEMPTS": "1", "WAKUPUSH_BREAKER__FAULTS": str(10**6)}


@dataclass(frozen=True)
class Came:
    """How messages came through."""

    per_second: float
    #: Microseconds of all processes of the server, by message.
    cpu: float


class Subject(Bench):
    """A server that is measured, on a real or a development node and gorush."""

    def __init__(
        self,
        stack: Stack,
        pool: ProcessPoolExecutor,
        send: Callable[[list[Made]], None],
        connection: Connection,
        redis: Redis,
    ) -> None:
        super().__init__(stack, pool)
        self._send = send
        self.connection = connection
        self._redis = redis

    def measure(self, messages: list[Made]) -> Came:
        """Let messages wait in the node, then be handled until nothing is left to do."""
        stack = self.stack
        topic_keys.set_others(self.connection)
        idle = idle_cpu(stack)
        before = handled(self.connection)
        with suspended(stack.reconcile):
            with suspended(stack.ingest):
                self._send(messages)
                used, begun = cpu(stack), time.monotonic()
            wait_until(
                lambda: self._is_done(before + len(messages)), timeout=PATIENCE, what="all is done", interval=0.05
            )
            seconds, after = time.monotonic() - begun, cpu(stack)
        spent = sum(after[name] - used[name] - each * seconds for name, each in idle.items())
        return Came(len(messages) / seconds, 1e6 * spent / len(messages))

    def _is_done(self, count: int) -> bool:
        return handled(self.connection) >= count and not queued_and_stored(self._redis, self.connection)


def publish(url: str, messages: list[Made]) -> None:
    """Publish through a node's REST API, as clients do."""
    path = f"/relay/v1/messages/{quote(SHARD, safe='')}"
    with httpx2.Client(base_url=url, trust_env=False, timeout=60) as http:
        for message in messages:
            http.post(path, content=message.body, headers={"Content-Type": "application/json"}).raise_for_status()


@contextmanager
def go_waku(binary: str, directory: Path) -> Iterator[str]:
    """Run a go-waku without peers; its URL."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [
        binary, "--address=127.0.0.1", "--ext-ip=127.0.0.1", f"--tcp-port={free_port()}", "--cluster-id=16",
        "--nat=none", "--relay", *(f"--pubsub-topic={shard}" for shard in SHARDS), "--min-relay-peers-to-publish=0",
        "--rest", "--rest-address=127.0.0.1", f"--rest-port={port}", f"--rest-relay-cache-capacity={CACHE_CAPACITY}",
    ]  # fmt: skip
    log = directory / "go-waku.log"
    with Process(
        "go-waku", command, log=log, cwd=directory, ready=lambda: answers_http(f"{url}/debug/v1/info"), grace=2
    ):
        yield url


@contextmanager
def gorush(binary: str, directory: Path) -> Iterator[str]:
    """Run a gorush whose way to Apple ends at a closed port; its URL."""
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (directory / "key.p8").write_bytes(key)
    url = f"http://127.0.0.1:{(port := free_port())}"
    config = {
        "core": {
            "enabled": True, "address": "127.0.0.1", "port": str(port), "sync": True, "worker_num": 64,
            "queue_num": 32768, "max_notification": 100, "mode": "release", "http_proxy": f"http://127.0.0.1:{free_port()}",
        },
        "queue": {"engine": "local"},
        "log": {"access_log": str(directory / "access.log"), "error_log": str(directory / "error.log")},
        "android": {"enabled": False},
        "ios": {
            "enabled": True, "key_path": str(directory / "key.p8"), "key_type": "p8", "key_id": "ABCDEFGHIJ",
            "team_id": "KLMNOPQRST", "max_concurrent_pushes": 100, "max_retry": 0,
        },
        "stat": {"engine": "memory"},
    }  # fmt: skip
    (directory / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    command = [binary, "-c", str(directory / "config.yml")]
    ready = partial(answers_http, f"{url}/healthz")
    with Process("gorush", command, log=directory / "gorush.log", cwd=directory, ready=ready):
        yield url


@contextmanager
def serving(
    waku: str | None, rush: str | None, concurrency: int, settings: Mapping[str, str] | None = None
) -> Iterator[Subject]:
    """Run a server on real parts, where binaries are given."""
    with ExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="wakupush-real-", ignore_cleanup_errors=True))
        )
        directory.chmod(0o755)
        pool = stack.enter_context(makers())
        external = External(
            waku_url=stack.enter_context(go_waku(waku, directory)) if waku else None,
            gorush_url=stack.enter_context(gorush(rush, directory)) if rush else None,
        )
        served = stack.enter_context(
            Stack(
                directory,
                concurrency=concurrency,
                external=external,
                defaults={**UNLIMITED, **(ONCE if rush else {}), **(settings or {})},
                node_options=("--cache-capacity", str(CACHE_CAPACITY)),
            )
        )
        connection = stack.enter_context(served.connect())
        redis = stack.enter_context(closing(Redis.from_url(served.redis_url)))
        send = partial(publish if waku else relay, served.node_url)
        yield Subject(served, pool, send, connection, redis)


def measured(waku: str | None, rush: str | None, concurrency: int, count: int) -> dict[str, Came]:
    """Start a server, and measure messages of each kind."""
    with serving(waku, rush, concurrency) as subject:
        pairs = subject.make(partial(made.registration, subject.server), list(range(count)))
        users = [user for _, user in pairs]
        warm_up, rest = pairs[:200], pairs[200:]
        subject.measure([message for message, _ in warm_up])
        topic_keys.set_for(users[:ASKED], subject, subject.connection)
        found = {"first registrations": subject.measure([message for message, _ in rest])}
        asked = [users[number % ASKED] for number in range(count)]
        found["queries"] = subject.measure(subject.make(made.query, asked))
        found["push requests"] = subject.measure(subject.make(partial(made.request, subject.server), users))
        found["foreign messages"] = subject.measure(
            subject.make(partial(made.garbage, subject.server), list(range(2 * count)))
        )
        return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.real", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--waku", default=os.environ.get("WAKUPUSH_TEST_WAKU"), help="a go-waku 0.10 binary")
    parser.add_argument("--gorush", default=os.environ.get("WAKUPUSH_TEST_GORUSH"), help="a gorush 1.22 binary")
    parser.add_argument("--concurrency", type=int, default=1, help="worker processes of each pool")
    parser.add_argument("--messages", type=int, default=2000, help="of each kind")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if not (options.waku and options.gorush):
        parser.error("name the binaries of go-waku and gorush")
    parts = {
        "development servers": (None, None),
        "go-waku": (options.waku, None),
        "go-waku and gorush, each push fails": (options.waku, options.gorush),
    }
    runs = [
        {name: measured(*binaries, options.concurrency, options.messages) for name, binaries in parts.items()}
        for _ in range(options.runs)
    ]
    console = Console(highlight=False, soft_wrap=True)
    table = Table("", *(f"{name}: a second, µs of CPU" for name in parts), box=None)
    for kind in runs[0]["go-waku"]:
        cells = [
            (median(run[name][kind].per_second for run in runs), median(run[name][kind].cpu for run in runs))
            for name in parts
        ]
        table.add_row(kind, *(f"{rate:,.0f}, {spent:,.0f}" for rate, spent in cells))
    console.width = max(console.width, 160)
    console.print(table)
    return 0


if __name__ == "__main__":
    end_on_signals()
    raise SystemExit(main())
