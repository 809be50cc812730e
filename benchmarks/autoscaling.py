"""`make autoscaling`: starts and stops real workers by the formulas of KEDA and the HPA, under a changing load.

Everything is real except Kubernetes: ingest, Redis, Postgres, the exporter, whose metrics decide, and the processes of
the pool `dispatch`, which get SIGTERM when there are too many. gorush answers in 300 ms, so workers wait instead of
competing for the cores. Times are those of the chart, divided by `FASTER`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx2
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from benchmarks import made
from benchmarks.controller import Autoscaler, Behaviour
from benchmarks.plot import plot
from benchmarks.running import UNLIMITED, Bench, delivery_key_of, log_after, position, relay
from wakupush.devnet.demo.stack import Stack
from wakupush.devnet.parts.processes import Process, wait_until

FASTER = 7.5
#: Seconds between looks: KEDA's polling interval and the sync period of the HPA are 15 s.
LOOK = 15 / FASTER
BEHAVIOUR = Behaviour(
    least=1,
    most=8,
    stabilisation=300 / FASTER,
    up_period=15 / FASTER,
    up_percent=100,
    up_pods=2,
    down_period=60 / FASTER,
    down_pods=1,
)
#: Messages, waiting or under way, for each worker. One of these takes 4 at a time and waits for their posts: about 10 a
#: second with a gorush of 300 ms. This is three quarters of that.
THRESHOLD = 3
SETTINGS = UNLIMITED | {"WAKUPUSH_INGEST__BATCH_SIZE": "4", "WAKUPUSH_GORUSH__BATCH_SIZE": "1"}
GORUSH_SECONDS = 0.3
#: Requests a second, and for how many seconds.
LOAD = ((5, 20), (15, 20), (30, 20), (45, 40), (30, 20), (15, 20), (5, 60))
#: What the trigger adds up; the chart's query does the same.
LOAD_SERIES = (
    ("wakupush_queue_messages", "dispatch"),
    ("wakupush_in_flight_messages", "dispatch"),
    ("wakupush_deliveries_due", "ios"),
)


@dataclass
class Sample:
    """A moment; `at` in seconds since the start."""

    at: float
    rate: float
    #: By the exporter: messages in the queue and under way, deliveries that are due.
    queued: float
    under_way: float
    due: float
    #: Workers that run, and that are wanted.
    running: int
    wanted: int


@dataclass
class Result:
    """One simulation."""

    samples: list[Sample] = field(default_factory=list)
    #: When a push arrived at gorush, in seconds since the start, and how long it took from the node.
    latencies: list[tuple[float, float]] = field(default_factory=list)
    requested: int = 0
    stopped_workers: int = 0
    #: Of the workers that were stopped: the longest time to end, in seconds.
    longest_stop: float = 0.0
    delivered: int = 0
    doubled: int = 0
    not_first_attempt: int = 0


class Pool:
    """The replicas of dispatch: processes that are started and stopped in the background, as kubelets do."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.workers: list[Process] = []
        self.stopped: list[float] = []
        self._started: list[Process] = []
        self._threads = ThreadPoolExecutor(12)
        self._pending: list = []

    def scale(self, replicas: int) -> None:
        while len(self.workers) < replicas:
            worker = self.stack.worker("dispatch")
            self.workers.append(worker)
            self._pending.append(self._threads.submit(self._start, worker))
        while len(self.workers) > replicas:
            self._pending.append(self._threads.submit(self._stop, self.workers.pop()))

    def _start(self, worker: Process) -> None:
        worker.start()
        self._started.append(worker)

    def _stop(self, worker: Process) -> None:
        wait_until(lambda: worker in self._started, timeout=60, what="what is to be stopped runs")
        self._started.remove(worker)
        begun = time.monotonic()
        worker.stop()
        if worker.wait():
            raise RuntimeError(worker.log_tail())
        self.stopped.append(time.monotonic() - begun)

    @property
    def running(self) -> int:
        """How many take tasks."""
        return len(self._started)

    def finish(self) -> None:
        for each in self._pending:
            each.result()


@contextmanager
def running_parts() -> Iterator[tuple[Bench, Pool]]:
    directory = Path(tempfile.mkdtemp(prefix="wakupush-autoscaling-"))
    directory.chmod(0o755)
    try:
        with Stack(directory, settings=SETTINGS) as stack, ProcessPoolExecutor(2) as processes, stack.exporter():
            bench = Bench(stack, processes)
            registrations = bench.make(partial(made.registration, bench.server), list(range(50)))
            bench.load([message for message, _ in registrations], answers=len(registrations))
            bench.users = [user for _, user in registrations]
            stack.workers["dispatch"].stop()
            pool = Pool(stack)
            try:
                yield bench, pool
            finally:
                pool.scale(0)
                pool.finish()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def figures(url: str) -> dict[tuple[str, str], float]:
    """Return what the exporter shows, by name and value of its label."""
    text = httpx2.get(f"{url}/metrics", trust_env=False, timeout=10).text
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def rate_at(seconds: float) -> float:
    for rate, length in LOAD:
        if seconds < length:
            return rate
        seconds -= length
    return 0.0


def send(bench: Bench, sent: list[made.Made], begun: float) -> None:
    """Let messages arrive at the node at the rates of `LOAD`."""
    done = 0
    due = 0.0
    last = begun
    while done < len(sent):
        time.sleep(0.1)
        now = time.monotonic()
        due += rate_at(now - begun) * (now - last)
        last = now
        if now - begun > sum(length for _, length in LOAD):
            due = len(sent)
        some = sent[done : int(due)]
        relay(bench.stack.node_url, some)
        done += len(some)


def simulate(bench: Bench, pool: Pool) -> Result:
    stack = bench.stack
    result = Result(requested=int(sum(rate * length for rate, length in LOAD)))
    users = [bench.users[number % len(bench.users)] for number in range(result.requested)]
    sent = bench.make(partial(made.request, bench.server), users)
    httpx2.post(
        f"{stack.gorush_url}/dev/faults", json={"path": "/api/push", "kind": "delay", "seconds": GORUSH_SECONDS}
    ).raise_for_status()
    node_log, gorush_log = position(stack.node_url), position(stack.gorush_url)
    scaler = Autoscaler(BEHAVIOUR)
    pool.scale(BEHAVIOUR.least)
    wait_until(lambda: pool.running == BEHAVIOUR.least, timeout=30, what="the first worker runs")
    begun, begun_at = time.monotonic(), time.time()
    sender = threading.Thread(target=send, args=(bench, sent, begun))
    sender.start()
    quiet = 0
    # Until everything is delivered and the pool is as small as it was.
    while sender.is_alive() or quiet < 3 or len(pool.workers) > BEHAVIOUR.least:
        now = time.monotonic() - begun
        found = figures(stack.exporter_url)
        value = sum(found[series] for series in LOAD_SERIES)
        wanted = scaler.decide(now, len(pool.workers), [(value, THRESHOLD)])
        pool.scale(wanted)
        parts = (found[series] for series in LOAD_SERIES)
        result.samples.append(Sample(now, rate_at(now), *parts, pool.running, wanted))
        quiet = 0 if value else quiet + 1
        time.sleep(LOOK)
    sender.join()
    pool.finish()
    result.stopped_workers, result.longest_stop = len(pool.stopped), max(pool.stopped)
    _count(bench, sent, result, (node_log, gorush_log, begun_at))
    return result


def _count(bench: Bench, sent: list[made.Made], result: Result, start: tuple[int, int, float]) -> None:
    """Count the outcomes of the messages since `start`, which has the positions in both logs, and the time."""
    stack = bench.stack
    node_log, gorush_log, begun_at = start
    pushes: dict[str, list[float]] = {}
    for each in log_after(stack.gorush_url, gorush_log)[0]:
        pushes.setdefault(delivery_key_of(each), []).append(each["at"])
    arrived = {each["hash"]: each["arrivedAt"] for each in log_after(stack.node_url, node_log)[0]}
    for each in sent:
        times = pushes.get(each.delivery_key, [])
        result.delivered += bool(times)
        result.doubled += len(times) > 1
        if times:
            result.latencies.append((times[0] - begun_at, times[0] - arrived[f"0x{each.hash}"]))
    with stack.connect() as connection:
        [result.not_first_attempt] = connection.execute(
            "SELECT count(*) FROM deliveries WHERE state <> 'delivered' OR attempt <> 1"
        ).fetchone()


def report(result: Result) -> str:
    latencies = sorted(latency for _, latency in result.latencies)
    middle, late = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    return (
        f"{result.requested} requests, {result.delivered} delivered, {result.doubled} twice,"
        f" {result.not_first_attempt} not at their first attempt; {result.stopped_workers} workers stopped,"
        f" the slowest within {result.longest_stop:.1f} s; at most {max(s.running for s in result.samples)} workers,"
        f" at most {max(s.queued + s.due for s in result.samples):.0f} messages waiting;"
        f" node to gorush: p50 {middle:.2f} s, p99 {late:.2f} s,"
        f" most {latencies[-1]:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.autoscaling", description=__doc__.splitlines()[0])
    parser.add_argument("--plot", type=Path, default=Path("docs/operating/images/autoscaling.svg"))
    parser.add_argument("--json", type=Path, help="write all samples there too")
    options = parser.parse_args()
    with running_parts() as (bench, pool):
        result = simulate(bench, pool)
    options.plot.write_text(plot(result.samples, result.latencies))
    if options.json:
        samples = [vars(sample) for sample in result.samples]
        options.json.write_text(json.dumps({"samples": samples, "latencies": result.latencies}))
    Console(highlight=False, soft_wrap=True).print(report(result))


if __name__ == "__main__":
    main()
