"""A running server that is loaded and measured."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path

import httpx2
import psutil
from redis import Redis

from benchmarks import made
from benchmarks.made import SHARD, Made, User
from wakupush.devnet.processes import Process, wait_until
from wakupush.devnet.stack import Stack
from wakupush.model.queues import POOLS, QUEUES
from wakupush.redis.backlog import UNACKED

#: Messages in one request to the node.
RELAYED_AT_ONCE = 100
#: Not the server: the network, and the platforms.
OUTSIDE = frozenset({"waku", "gorush"})
#: Seconds for which a server that has nothing to do is watched: what it uses then is not the messages' cost.
IDLE = 3.0


class Bench:
    """A running server with who is registered there, and with our own connections to its Postgres and Redis.

    Args:
        stack: a `Stack`, or what stands for it.
        pool: of processes that make messages.
    """

    def __init__(self, stack: Stack, pool: ProcessPoolExecutor) -> None:
        self.stack = stack
        self.pool = pool
        self.server = stack.key.public_key.compressed
        self.connection = stack.connect()
        self.redis = Redis.from_url(stack.redis_url)
        self.users: list[User] = []

    def close(self) -> None:
        self.redis.close()
        self.connection.close()

    def part(self, name: str) -> Process:
        """Return the process of this name."""
        return next(process for process in self.stack.processes if process.name == name)

    def make(self, work: Callable, arguments: list) -> list:
        """Do work for each argument in all processes of the pool."""
        return list(self.pool.map(work, arguments, chunksize=50))


#: Limits are off: a benchmark sends to a few users what is normally for many, and none of it must be held back.
UNLIMITED = dict.fromkeys(
    (
        "WAKUPUSH_LIMITS__FIRST_REGISTRATIONS_PER_HOUR",
        "WAKUPUSH_LIMITS__PUSHES_PER_DEVICE_PER_MINUTE",
        "WAKUPUSH_LIMITS__ANSWER_BYTES_PER_MINUTE",
        "WAKUPUSH_LIMITS__ANSWER_BYTES_PER_USER_PER_MINUTE",
        "WAKUPUSH_INGEST__TOPIC_MESSAGES_PER_MINUTE",
    ),
    str(10**12),
)


@contextmanager
def running(concurrency: int, *, pools: Sequence[str] = tuple(QUEUES), **settings: str) -> Iterator[Bench]:
    directory = Path(tempfile.mkdtemp(prefix="wakupush-bench-"))
    directory.chmod(0o755)
    try:
        # The stack ends first, and what the makers send it fails.
        with (
            makers() as pool,
            Stack(directory, concurrency=concurrency, pools=pools, defaults=settings or UNLIMITED) as stack,
            closing(Bench(stack, pool)) as bench,
        ):
            yield bench
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def makers() -> ProcessPoolExecutor:
    """Return a pool of processes that make messages and send them; Ctrl-C ends this process, which ends them."""
    # Spawned, so that they hold no pipe of the stack's processes.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(2, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))


def end_on_signals() -> None:
    """Raise an error on SIGTERM or Ctrl-C, so that everything that was started is stopped."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def relay(url: str, messages: list[Made]) -> None:
    """Let messages arrive at the node as its peers would relay them: the generator's cost is not the server's."""
    for start in range(0, len(messages), RELAYED_AT_ONCE):
        _relay_some(url, messages[start : start + RELAYED_AT_ONCE])


def relay_at(url: str, messages: list[Made], rate: float) -> None:
    """Let messages arrive at the node at an even rate (a second)."""
    every = max(1, int(rate / 50))
    start_time = time.monotonic()
    for start in range(0, len(messages), every):
        time.sleep(max(0.0, start_time + start / rate - time.monotonic()))
        _relay_some(url, messages[start : start + every])


def _relay_some(url: str, some: list[Made]) -> None:
    bodies = ",".join(each.body for each in some)
    content = f'{{"pubsubTopic":"{SHARD}","messages":[{bodies}]}}'
    _http().post(f"{url}/dev/messages", content=content).raise_for_status()


@cache
def _http() -> httpx2.Client:
    """Return the only client of this process: to make one takes as long as many requests."""
    return httpx2.Client(trust_env=False, timeout=60)


def position(url: str) -> int:
    return log_after(url, 2**53)[1]


def log_after(url: str, after: int) -> tuple[list[dict], int]:
    """Return what a development server logged after a position, and the position after it."""
    log = _http().get(f"{url}/dev/log", params={"after": after}).json()
    return log["entries"], int(log["next"])


def delivery_key_of(push: dict) -> str:
    """Return the delivery key, hex, of an entry of gorush's log: its notif_id without the attempt."""
    return push["notification"]["notif_id"].partition("-")[0]


@contextmanager
def gorush_fault(url: str, **fault: object) -> Iterator[None]:
    """Let the development gorush at a URL have a fault when it is posted to, until the end of the block."""
    faults = f"{url}/dev/faults"
    _http().post(faults, json={"path": "/api/push", **fault}).raise_for_status()
    try:
        yield
    finally:
        _http().delete(faults).raise_for_status()


@contextmanager
def suspended(process: Process) -> Iterator[None]:
    """Keep a process from running: what it would read waits, and it need not be started again."""
    members = family(process)
    for member in members:
        member.suspend()
    try:
        yield
    finally:
        for member in members:
            _resume(member)


def _resume(member: psutil.Process) -> None:
    if member.is_running():
        member.resume()


def idle_cpu(stack: Stack) -> dict[str, float]:
    """Return the CPU seconds a second of each process of a server that has nothing to do."""
    before, start_time = cpu(stack), time.monotonic()
    time.sleep(IDLE)
    after, seconds = cpu(stack), time.monotonic() - start_time
    return {name: (after[name] - before[name]) / seconds for name in after if name not in OUTSIDE}


def cpu(stack: Stack) -> dict[str, float]:
    """Return the CPU seconds of each part, with its children."""
    return {process.name: sum(map(cpu_of, family(process))) for process in stack.processes if process.pid}


def memory(process: Process) -> int:
    """Return the bytes of memory that a process and its children have for themselves."""
    return sum(member.memory_full_info().uss for member in family(process))


def family(process: Process) -> list[psutil.Process]:
    parent = psutil.Process(process.pid)
    return [parent, *parent.children(recursive=True)]


def cpu_of(member: psutil.Process) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    try:
        times = member.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system + times.children_user + times.children_system


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of values lies below."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


#: Seconds until everything that was sent is done.
PATIENCE = 300.0
#: Seconds between two looks that both find nothing to do: what ingest has read may not be in a queue yet.
PAUSE = 0.1
#: Answers that wait to be published, and deliveries under a lease. What is tried again later is done for now.
STORED = "SELECT (SELECT count(*) FROM answers) + (SELECT count(*) FROM deliveries WHERE state = 'posting')"
HANDLED = "SELECT count(*), extract(epoch FROM max(received_at))::float8 FROM ledger WHERE received_at > %s"
SET_TOPIC_KEY = "UPDATE query_topics SET symmetric_key = %s WHERE key_hash = %s"
SET_OTHER_TOPIC_KEYS = "UPDATE query_topics SET symmetric_key = sha256(key_hash) WHERE symmetric_key IS NULL"


def rest(bench: Bench) -> None:
    """Wait until a server has nothing to do.

    Raises:
        WaitTimeoutError: it still has work after minutes.
    """

    def rests() -> bool:
        if _waiting(bench):
            return False
        time.sleep(PAUSE)
        return not _waiting(bench)

    wait_until(rests, timeout=PATIENCE, what="the server has nothing to do", interval=PAUSE)


def _waiting(bench: Bench) -> int:
    """Return how much of the begun work is not done."""
    unread = _http().get(f"{bench.stack.node_url}/dev/counters").json()["unread"]
    queued = sum(map(bench.redis.llen, POOLS)) + bench.redis.hlen(UNACKED)
    [(row_count,)] = bench.connection.execute(STORED).fetchall()
    return int(unread + queued + row_count)


def handled(bench: Bench, since: datetime) -> tuple[int, float]:
    """Return how many messages were handled since a time, of whatever kind, and when the last one was (Unix time)."""
    [(count, last)] = bench.connection.execute(HANDLED, [since]).fetchall()
    return int(count), float(last or 0.0)


def now(bench: Bench) -> datetime:
    """Return the time in Postgres."""
    [(time_there,)] = bench.connection.execute("SELECT now()").fetchall()
    return time_there


def set_topic_keys(bench: Bench, users: list[User]) -> None:
    """Set the keys of the query topics of users for whom others ask, so that deriving them is not measured."""
    for key_hash, key in bench.make(made.topic_key, users):
        bench.connection.execute(SET_TOPIC_KEY, [key, key_hash])


def set_other_topic_keys(bench: Bench) -> None:
    """Let no key be left to derive, which the schedule does when there is nothing else to do.

    No client queries these users, so the values that are set need not be valid keys.
    """
    bench.connection.execute(SET_OTHER_TOPIC_KEYS)
