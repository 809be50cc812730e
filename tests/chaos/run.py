"""A chaos run: a loaded server whose parts are killed, then quiet, then the evidence: ``make chaos``."""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from threading import Event, Thread

from rich.console import Console

from chaos import collect, figures
from chaos.checker import Violation, judge
from chaos.clients import APPS
from chaos.evidence import Evidence, Sample
from chaos.faults import FAULTS, ROOT_FAULTS, Fault, Havoc, Planned, schedule, server_processes
from chaos.real_nodes import FAULTS_OF_REAL_NODES, RealNodes, real_nodes
from chaos.stack import ChaosStack
from chaos.traffic import PYTHONPATH, Traffic, ended_well
from wakupush.devnet.processes import WaitTimeoutError
from wakupush.devnet.stack import External
from wakupush.model.queues import POOLS
from wakupush.redis.celery_app import VISIBILITY_TIMEOUT_SECONDS

#: The topics of two apps.
STATUS, OTHER = APPS
#: What the server is told in every run: waits that fit into the time of a run.
SETTINGS = {
    "PYTHONPATH": PYTHONPATH,
    "WAKUPUSH_DELIVERY__FIRST_WAIT": "0.5",
    "WAKUPUSH_DELIVERY__SLOW_FIRST_WAIT": "2",
    "WAKUPUSH_DELIVERY__MAX_WAIT": "5",
    "WAKUPUSH_DELIVERY__MAX_ATTEMPTS": "25",
    "WAKUPUSH_DELIVERY__CLAIM": "15",
    "WAKUPUSH_GORUSH__CONNECT_TIMEOUT": "2",
    "WAKUPUSH_GORUSH__TIMEOUT": "8",
    "WAKUPUSH_DELIVERY__LEASE": "35",
    # Shorter by as much as the waits. A tenth of the devices fails twice as if the whole platform did, and a backlog is
    # theirs for the most part: probes have to get past them in time.
    "WAKUPUSH_BREAKER__PAUSE": "0.25",
    "WAKUPUSH_INGEST__CLAIM_TTL": "30",
    # Clocks are wrong by 110 s together.
    "WAKUPUSH_RECONCILE__OVERLAP": "140",
}
#: The apps of the clients' devices.
APP_SETTINGS = {
    "WAKUPUSH_APPS__STATUS__TOPICS": json.dumps([STATUS]),
    "WAKUPUSH_APPS__STATUS__FIREBASE": "true",
    "WAKUPUSH_APPS__OTHER__TOPICS": json.dumps([OTHER]),
    # Each app and platform has its own slots.
    "WAKUPUSH_GORUSH__CONCURRENCY": "32",
}
#: Seconds by which the clock of the machine that ingest runs on may be wrong.
CLOCKS = (-20.0, 20.0)
#: Seconds around its own time that the node archives messages of: clients' clocks are wrong, and faults take time.
ARCHIVE_WINDOW = 240
#: Seconds that what comes back may wait behind others.
QUEUE_SECONDS = 60.0
#: Unread messages that the node keeps, few enough to overflow; nwaku's own default is 50.
CACHE_CAPACITY = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is run."""

    seed: str
    #: Sent under faults, first registrations not counted.
    messages: int
    #: For which faults happen.
    seconds: float
    #: Mean seconds between the beginnings of two faults.
    pause: float
    #: Seconds until all has to be quiet afterwards.
    patience: float
    #: Users of each load process, with two devices each.
    users: int = 40
    loads: int = 2
    concurrency: int = 2
    faults: tuple[Fault, ...] = FAULTS
    #: Whether each fault happens alone first.
    alone: bool = False
    #: Whether real nwakus relay, see `chaos.real_nodes`.
    real_nodes: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    worker_module: str = "wakupush"

    @property
    def clock(self) -> float:
        """Seconds by which the clock of ingest is wrong."""
        return Random(self.seed).choice(CLOCKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a run."""

    options: Options
    evidence: Evidence
    violations: list[Violation]
    #: Seconds: from the first message to the last fault's end, and from there until all was quiet.
    ran: float
    settled: float


def run(options: Options, directory: Path, say: Callable[[str], None] = lambda _: None) -> Outcome:
    """Start a server, load it, let faults happen, wait until all is quiet, and judge it.

    Args:
        options: load, faults and their seed: the same seed gives the same faults.
        directory: for data and logs; if we are root, every folder above it must be open to others.
        say: is told how far it is.
    """
    directory.mkdir(exist_ok=True)
    with ExitStack() as started:
        nodes = started.enter_context(real_nodes(directory)) if options.real_nodes else None
        settings = SETTINGS | APP_SETTINGS | options.settings
        if nodes:
            # What is relayed while the server's node is dead, the Store of its peer has.
            settings["WAKUPUSH_RECONCILE__STORES"] = json.dumps([nodes.server.url, nodes.clients.url])
        stack = ChaosStack(
            directory,
            external=External(waku_url=nodes.server.url if nodes else None),
            concurrency=options.concurrency,
            pools=POOLS,
            settings=settings,
            worker_module=options.worker_module,
            node_options=(
                *("--archive-window", str(ARCHIVE_WINDOW), "--archive-file", str(directory / "archive.sqlite")),
                *("--cache-capacity", str(CACHE_CAPACITY), "--log-file", str(directory / "waku.jsonl")),
            ),
            gorush_options=("--log-file", str(directory / "gorush.jsonl")),
        )
        for name in ("ingest-live", "ingest-reconcile"):
            stack.set_clock(name, options.clock)
        if nodes:
            stack.node = nodes.server
        started.enter_context(stack)
        if not stack.resolver:
            say("only root may mount disks and name parts: none is full, and all are found")
            options = replace(options, faults=tuple(fault for fault in options.faults if fault not in ROOT_FAULTS))
        return _Run(options, stack, say, nodes).run()


class _Run:
    def __init__(
        self, options: Options, stack: ChaosStack, say: Callable[[str], None], nodes: RealNodes | None = None
    ) -> None:
        self._options = options
        self._stack = stack
        self._say = say
        self._nodes = nodes
        self._traffic = Traffic(
            stack,
            seed=options.seed,
            users=options.users,
            processes=options.loads,
            node_url=nodes.clients.url if nodes else None,
        )
        self._havoc = Havoc(stack, say)
        self._samples: list[Sample] = []

    def run(self) -> Outcome:
        options = self._options
        self._traffic.register()
        self._say(f"{len(self._traffic.messages())} devices registered")
        start_time = time.time()
        loads = self._traffic.load(options.messages / options.seconds, options.messages)
        with self._watched():
            for process in loads:
                process.start()
            self._wreak(
                schedule(
                    Random(options.seed), options.faults, options.seconds, pause=options.pause, alone=options.alone
                )
            )
            for process in loads:
                ended_well(process)
            over = time.time()
            self._say(f"{len(self._traffic.messages())} messages sent, {len(self._havoc.windows)} faults")
            self._start_everything()
            with suppress(WaitTimeoutError):  # the checker says what is left
                self._traffic.wait_until_quiet(options.patience, "all is quiet")
            self._say("roll call of all devices")
            self._traffic.call_the_roll()
            with suppress(WaitTimeoutError):
                self._traffic.wait_until_quiet(options.patience, "the roll call is over")
        settled = time.time() - over
        self._say("reading the evidence")
        evidence = self._evidence()
        return Outcome(
            options=options, evidence=evidence, violations=judge(evidence), ran=over - start_time, settled=settled
        )

    def _wreak(self, planned: list[Planned]) -> None:
        start_time = time.monotonic()
        with ThreadPoolExecutor(16) as threads:
            futures = []
            for each in planned:
                time.sleep(max(0.0, start_time + each.at - time.monotonic()))
                self._say(f"{time.monotonic() - start_time:6.1f} s  {each.fault.name} ({each.seconds:.1f} s)")
                futures.append(threads.submit(self._havoc.wreak, each))
            for future in futures:
                future.result()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Sample the processes, and start what ends by itself."""
        stop = Event()

        def watch() -> None:
            while not stop.wait(1.0):
                self._havoc.supervise()
                self._samples.extend(collect.samples(self._stack))

        thread = Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _start_everything(self) -> None:
        for process in (self._stack.postgres, self._stack.redis, self._stack.node, self._stack.gorush):
            process.start()
        for process in server_processes(self._stack).values():
            process.launch()

    def _evidence(self) -> Evidence:
        return self._traffic.evidence(
            relayed=self._nodes.relayed if self._nodes else None,
            faults=(*self._havoc.windows, *collect.busy(self._samples)),
            memory=tuple(self._samples),
            died=dict(self._havoc.died),
            **_patience(SETTINGS | self._options.settings),
        )


def _patience(settings: dict[str, str]) -> dict[str, float]:
    """Return the seconds of a lease, and those after a fault within which what it held up goes on.

    A message comes back by the broker or by reconcile, whichever is sooner. A delivery is claimed again when its lease
    and its claim are over; then it stands behind those that came before it.
    """
    lease, claim, longest_wait = (
        float(settings[f"WAKUPUSH_DELIVERY__{name}"]) for name in ("LEASE", "CLAIM", "MAX_WAIT")
    )
    claimed = float(settings["WAKUPUSH_INGEST__CLAIM_TTL"])
    return {
        "lease": lease,
        "message_patience": VISIBILITY_TIMEOUT_SECONDS + claimed + QUEUE_SECONDS,
        "delivery_patience": lease + claim + longest_wait + QUEUE_SECONDS,
        "time_to_live": float(settings.get("WAKUPUSH_DELIVERY__MESSAGE_TIME_TO_LIVE", "86400")),
    }


@contextmanager
def open_directory(keep: Path | None = None) -> Iterator[Path]:
    """Make a directory that Postgres' user can reach; without `keep` it is removed at the end."""
    directory = keep or Path(tempfile.mkdtemp(prefix="wakupush-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", default=secrets.token_hex(4))
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=12.0, help="for which faults happen")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--real-nodes", action="store_true", help="by the nwaku that WAKUPUSH_TEST_NWAKU names")
    parser.add_argument("--keep", type=Path, help="work in this directory, and keep it")
    arguments = parser.parse_args()
    # Disks would stay mounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    console = Console(highlight=False, soft_wrap=True)
    options = Options(
        seed=arguments.seed,
        messages=arguments.messages,
        seconds=60 * arguments.minutes,
        pause=2.5,
        patience=240.0,
        alone=True,
        faults=FAULTS_OF_REAL_NODES if arguments.real_nodes else FAULTS,
        real_nodes=arguments.real_nodes,
    )
    console.print(f"seed {arguments.seed}: {arguments.messages} messages in {arguments.minutes:g} minutes")
    console.print(f"ingest's clock is wrong by {options.clock:+g} s")
    with open_directory(arguments.keep) as directory:
        outcome = run(options, directory, say=lambda text: console.print(text, markup=False, style="dim"))
    console.print(figures.table(outcome))
    for violation in outcome.violations:
        console.print(str(violation), markup=False, style="red")
    if arguments.json:
        figures.write(outcome, arguments.json)
    console.print(f"seed {arguments.seed}: {len(outcome.violations)} violations")
    sys.exit(bool(outcome.violations))


if __name__ == "__main__":
    main()
