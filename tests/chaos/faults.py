"""What can go wrong, each with a bounded time and a way back, and when it does: a seeded schedule."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from threading import Event, Lock, Thread

import httpx2
import psutil
import psycopg
from psycopg.conninfo import make_conninfo
from redis import Redis

from chaos.case import LOST_LOG
from chaos.evidence import Window
from chaos.stack import COMMIT_TIMES, ChaosStack
from support.relay import Relay
from support.replica import Backup, Replica
from wakupush.devnet.processes import Process, StartFailedError, wait_until
from wakupush.model.queues import POOLS
from wakupush.model.roles import Role

#: A fault at work: what it begins, it ends. It yields the processes of the server that it kills or stops for a while.
Work = Callable[[ChaosStack, Random], AbstractContextManager[Iterable[int]]]


#: Seconds by which a clock is set.
JUMPS = (-45.0, -10.0, 10.0, 45.0)
#: Files of Postgres' log that are filled: more than it keeps for later.
FULL_SEGMENTS = 8
#: The part of the connections that are cut at a time.
CUT = 0.4


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that can go wrong."""

    name: str
    #: The part that it concerns: nothing else goes wrong with that part meanwhile.
    part: str
    work: Work
    #: Shortest and longest time in seconds.
    seconds: tuple[float, float]
    #: Processes that get a SIGKILL.
    kills: int = 0
    weight: int = 1
    #: Whether Postgres comes back without what was committed meanwhile.
    loses: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault and its time."""

    #: Seconds from the beginning of the run.
    at: float
    fault: Fault
    #: How long it lasts.
    seconds: float
    #: For what the fault itself decides.
    seed: int


def _start(process: Process) -> None:
    """Start one of the parts that need no other one, and wait for it; a loaded machine may need a second try."""
    for _ in range(3):
        with suppress(StartFailedError):
            process.start()
            return
    process.start()


@contextmanager
def _killed(part: str, stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """Postgres, Redis, the node or gorush."""
    process: Process = getattr(stack, part)
    with _cut_off(part, stack):
        process.kill()
        try:
            yield ()
        finally:
            _start(process)


@contextmanager
def _cut_off(part: str, stack: ChaosStack, _: Random | None = None) -> Iterator[Iterable[int]]:
    """Nothing passes the relay before a part, if there is one: connections end, and new ones are refused."""
    relay = stack.relays.get(part)
    if relay:
        relay.cut()
    try:
        yield ()
    finally:
        if relay:
            relay.mend()


@contextmanager
def _process_killed(
    name: str, stack: ChaosStack, random: Random, *, has_been_asked: bool = False
) -> Iterator[Iterable[int]]:
    """A process of the server, which waits by itself for what it needs when it starts again.

    If it has been asked to end before, it is killed before it is done: its grace was too short.
    """
    process = server_processes(stack)[name]
    pids = [process.pid, *(child.pid for child in _children(process, random))] if process.pid else []
    if has_been_asked and process.pid:
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(random.uniform(0.05, 1.5))
    process.kill()
    try:
        yield pids
    finally:
        server_processes(stack)[name].launch()


@contextmanager
def _child_killed(name: str, stack: ChaosStack, random: Random) -> Iterator[Iterable[int]]:
    """One process of a pool, which the pool replaces."""
    children = _children(server_processes(stack)[name], random)[:1]
    with suppress(psutil.NoSuchProcess):
        for child in children:
            child.kill()
    yield [child.pid for child in children]


@contextmanager
def _stalled(name: str, stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """A process that stands still, as on a machine that swaps."""
    pid = (server_processes(stack) | {"redis": stack.redis})[name].pid
    if pid is not None:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield [pid] if pid is not None else []
    finally:
        if pid is not None:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def _child_stalled(name: str, stack: ChaosStack, random: Random) -> Iterator[Iterable[int]]:
    """A process of a pool that stands still."""
    children = _children(server_processes(stack)[name], random)[:1]
    with suppress(psutil.NoSuchProcess):
        for child in children:
            child.suspend()
    try:
        yield [child.pid for child in children]
    finally:
        with suppress(psutil.NoSuchProcess):
            for child in children:
                child.resume()


@contextmanager
def _redis_wiped(stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    with Redis.from_url(stack.redis_url) as redis:
        redis.flushall()
    yield ()


@contextmanager
def _connections_cut(stack: ChaosStack, random: Random) -> Iterator[Iterable[int]]:
    """Connections to Redis end in the midst of what is under way, while others of the same process stay."""
    over = Event()

    def cut() -> None:
        with Redis.from_url(stack.redis_url) as redis:
            while not over.wait(0.3):
                for client in redis.client_list():
                    if random.random() < CUT:
                        redis.client_kill_filter(_id=client["id"])

    thread = Thread(target=cut)
    thread.start()
    try:
        yield ()
    finally:
        over.set()
        thread.join()


@contextmanager
def _node_forgets(stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """Subscriptions and unread messages are gone, as after a restart that nobody noticed."""
    httpx2.post(f"{stack.node_url}/dev/restart", trust_env=False).raise_for_status()
    yield ()


@contextmanager
def _spoiled(part: str, fields: dict[str, object], stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """Requests to the node or to gorush go wrong."""
    url = f"{getattr(stack, f'{part}_url')}/dev/faults"
    httpx2.post(url, json=fields, trust_env=False).raise_for_status()
    try:
        yield ()
    finally:
        httpx2.delete(url, trust_env=False).raise_for_status()


@contextmanager
def _rolling_restart(stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """Every process is replaced as an orchestrator does it: the new one is there before the old one is asked to end."""
    for queue in POOLS:
        old, new = stack.workers[queue], stack.worker(queue, concurrency=stack.concurrency)
        new.launch()
        with suppress(TimeoutError):
            wait_until(partial(new.has_logged, " ready."), timeout=120, what="the new worker takes tasks", interval=0.2)
        stack.workers[queue] = new
        old.stop()
    for name, process in server_processes(stack).items():
        if name not in POOLS:
            process.stop()
            process.launch()
    yield ()


@contextmanager
def _clock_jumps(name: str, stack: ChaosStack, random: Random) -> Iterator[Iterable[int]]:
    """The clock of a process is set, and set right again."""
    stack.set_clock(name, random.choice(JUMPS))
    try:
        yield ()
    finally:
        stack.set_clock(name, 0.0)


@contextmanager
def _far_away(part: str, seconds: float, stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """Whatever goes to a part, or comes from it, takes its time."""
    relay = stack.relays[part]
    relay.delay = seconds
    try:
        yield ()
    finally:
        relay.mend()


@contextmanager
def _swallowed(part: str, stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """Connections carry nothing any more, and nobody is told; those that were open never do again."""
    relay = stack.relays[part]
    relay.swallow()
    try:
        yield ()
    finally:
        relay.mend()


@contextmanager
def _data_disk_full(stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """No table of Postgres can grow."""
    stack.disks["data"].fill()
    try:
        yield ()
    finally:
        stack.disks["data"].make_room()


@contextmanager
def _wal_disk_full(stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """Postgres stops, as it cannot write its log, and does not come back before there is room."""
    stack.disks["wal"].fill()
    with suppress(psycopg.OperationalError), stack.connect() as connection:
        for _ in range(FULL_SEGMENTS):
            connection.execute("SELECT pg_logical_emit_message(false, 'chaos', ''), pg_switch_wal()")
    with _cut_off("postgres", stack):
        try:
            yield ()
        finally:
            stack.disks["wal"].make_room()
            stack.postgres.kill()
            _start(stack.postgres)


@contextmanager
def _restored(stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """The world goes on after a backup, until Postgres is lost and the backup takes its place."""
    backup = Backup(stack.directory / "backup", stack.postgres_dsn, COMMIT_TIMES)
    backup.take()
    try:
        yield ()
    finally:
        with _cut_off("postgres", stack):
            stack.postgres.kill()
            backup.start()
            stack.replace_postgres(backup)


@contextmanager
def _failed_over(stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """A replica that nobody waits for hears nothing any more of its primary, and takes its place when that dies."""
    link = Relay(stack.postgres.port)
    replica = Replica(stack.directory / "replica", make_conninfo(stack.postgres_dsn, port=link.port), COMMIT_TIMES)
    replica.start()
    link.cut()
    try:
        yield ()
    finally:
        with _cut_off("postgres", stack):
            stack.postgres.kill()
            replica.promote()
            link.close()
            stack.replace_postgres(replica)


@contextmanager
def _connections_used_up(stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """Postgres takes no further connection of those who are no superusers."""
    with ExitStack() as connections:
        with suppress(psycopg.OperationalError):
            while True:
                dsn = make_conninfo(stack.postgres_dsn, user=Role.EXPORTER)
                connections.enter_context(psycopg.connect(dsn, connect_timeout=5))
        yield ()


@contextmanager
def _names_unknown(stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """Nobody answers when a process asks where Postgres, Redis or gorush is: connections that are open work on."""
    stack.resolver.is_silent = True
    try:
        yield ()
    finally:
        stack.resolver.is_silent = False


@contextmanager
def _doubled(stack: ChaosStack, _: Random) -> Iterator[Iterable[int]]:
    """A second beat and a second reconcile run beside the first, as for a while after a lease was lost."""
    with ExitStack() as more:
        for process in stack.second_processes():
            process.launch()
            more.callback(process.stop)
        yield ()


def server_processes(stack: ChaosStack) -> dict[str, Process]:
    """Return the processes of the server itself by their names; they may be replaced at any time."""
    parts = {"beat": stack.beat, "feedback": stack.feedback, "ingest": stack.ingest, "reconcile": stack.reconcile}
    return stack.workers | parts


def _children(process: Process, random: Random) -> list[psutil.Process]:
    """Return the processes of a pool, in a random order."""
    if process.pid is None:
        return []
    children = psutil.Process(process.pid).children()
    random.shuffle(children)
    return children


def _of_requests(
    part: str, requests: Mapping[str, object], name: str, lasts: tuple[float, float], **fields: object
) -> Fault:
    return Fault(name, part, partial(_spoiled, part, {**requests, **fields}), lasts)


_gorush = partial(_of_requests, "gorush", {"path": "/api/push"})
_node = partial(_of_requests, "node", {"path": "/relay"})
_store = partial(_of_requests, "node", {"path": "/store", "method": "GET"})

#: Seconds of faults that begin when the mixed ones do.
LONG = 120.0

#: Faults after which the server has forgotten what it did; in runs of their own.
LOSSY_FAULTS = (
    Fault("Postgres is restored from a backup", "postgres", _restored, (20, 25), kills=1, loses=True),
    Fault("an asynchronous replica takes over", "postgres", _failed_over, (15, 20), kills=1, loses=True),
)
#: gorush is away for longer than a notification lives; in a run of its own, with short lives.
OUTLASTING_FAULT = Fault("gorush is away for long", "gorush", partial(_killed, "gorush"), (45, 50), kills=1)
#: Those that need disks, or a name server, of their own.
ROOT_FAULTS: tuple[Fault, ...] = (
    Fault("Postgres has no room for data", "postgres", _data_disk_full, (3, 8)),
    Fault("Postgres has no room for its log", "postgres", _wal_disk_full, (2, 6), kills=1),
    Fault("names are not resolved", "name server", _names_unknown, (4, 10)),
)
FAULTS: tuple[Fault, ...] = (
    *(
        fault
        for queue in POOLS
        for fault in (
            Fault(f"worker {queue} is killed", queue, partial(_process_killed, queue), (0, 5), kills=1, weight=3),
            Fault(f"a child of {queue} is killed", queue, partial(_child_killed, queue), (1, 2), kills=1, weight=3),
            Fault(f"a child of {queue} stalls", queue, partial(_child_stalled, queue), (2, 8)),
            Fault(
                f"worker {queue} is stopped and killed",
                queue,
                partial(_process_killed, queue, has_been_asked=True),
                (0, 4),
                kills=1,
            ),
            Fault(f"the clock of {queue} jumps", f"{queue}'s clock", partial(_clock_jumps, f"worker-{queue}"), (4, 10)),
        )
    ),
    Fault("the clock of beat jumps", "beat's clock", partial(_clock_jumps, "beat"), (4, 10)),
    Fault("there are two beats and two reconciles", "second processes", _doubled, (8, 20)),
    Fault("a child of dispatch outlives its lease", "dispatch", partial(_child_stalled, "dispatch"), (45, 50)),
    Fault("ingest is killed", "ingest", partial(_process_killed, "ingest"), (0, 4), kills=1, weight=3),
    Fault("ingest stalls and the node's cache overflows", "ingest", partial(_stalled, "ingest"), (3, 6)),
    Fault("beat is killed", "beat", partial(_process_killed, "beat"), (0, 5), kills=1, weight=2),
    Fault("reconcile is killed", "reconcile", partial(_process_killed, "reconcile"), (0, 5), kills=1, weight=2),
    Fault("feedback is killed", "feedback", partial(_process_killed, "feedback"), (0, 5), kills=1),
    Fault("Redis is killed", "redis", partial(_killed, "redis"), (0, 4), kills=1, weight=3),
    Fault("Redis stalls", "redis", partial(_stalled, "redis"), (2, 8)),
    Fault("connections to Redis are cut", "redis", _connections_cut, (3, 8), weight=2),
    Fault("Redis is wiped", "redis", _redis_wiped, (0.5, 1), weight=2),
    Fault("Redis does not hear what it is sent", "redis", partial(_swallowed, "redis"), (2, 6)),
    Fault("Postgres is killed", "postgres", partial(_killed, "postgres"), (0, 5), kills=1, weight=3),
    Fault("Postgres is cut off", "postgres", partial(_cut_off, "postgres"), (2, 8)),
    Fault("Postgres is far away", "postgres", partial(_far_away, "postgres", 0.15), (3, 8)),
    *ROOT_FAULTS,
    Fault("Postgres' connections are used up", "postgres", _connections_used_up, (3, 8)),
    Fault("the node is killed", "node", partial(_killed, "node"), (0, 5), kills=1, weight=2),
    Fault("the node forgets its subscriptions", "node", _node_forgets, (0.5, 1)),
    _node("the node is slow", (2, 6), kind="delay", seconds=0.4),
    _node("the node answers 500", (2, 6), kind="status", status=500),
    _node("the node refuses every other message", (2, 6), kind="status", status=500, method="POST", every=2),
    _node("the node takes messages and answers 500", (1, 4), kind="status", status=500, method="POST", handled=True),
    _node("the node cuts what it hands out", (0.5, 2), kind="close", method="GET", times=4),
    _store("every other page of the Store is cut", (3, 8), kind="close", every=2),
    _store("some pages of the Store are errors", (3, 8), kind="status", status=500, every=3),
    Fault("gorush is killed", "gorush", partial(_killed, "gorush"), (0, 5), kills=1, weight=3),
    _gorush("gorush hangs, its queue full", (2, 6), kind="hang"),
    _gorush("gorush takes pushes and hangs", (1, 3), kind="hang", handled=True),
    _gorush("gorush is slow", (2, 6), kind="delay", seconds=1.0),
    _gorush("gorush answers 500", (2, 6), kind="status", status=500),
    _gorush("gorush takes pushes and answers 500", (1, 3), kind="status", status=500, handled=True),
    _gorush("gorush answers 429", (2, 6), kind="status", status=429),
    _gorush("gorush closes in mid answer", (1, 3), kind="close"),
    _gorush("gorush answers half of its JSON", (1, 3), kind="garbage"),
    Fault("gorush is cut off", "gorush", partial(_cut_off, "gorush"), (2, 6)),
    Fault("gorush does not hear what it is sent", "gorush", partial(_swallowed, "gorush"), (2, 6)),
    _gorush(LOST_LOG, (2, 5), kind="drop_logs"),
    Fault("gorush is down for minutes", "gorush", partial(_killed, "gorush"), (LONG, 150), kills=1),
    Fault("everything is restarted in turn", "rollout", _rolling_restart, (0, 1)),
)
#: A rolling restart meets every process of the server.
_PARTS_OF_ROLLOUT = (*POOLS, "beat", "feedback", "ingest", "reconcile", "rollout")
#: The part of a run in which faults happen alone.
ALONE = 2 / 3
#: Seconds that a part has to itself after a fault, before the next one.
REST = 2.0
#: Seconds without any fault before several happen at once: what the server does when nothing ails it.
CALM = 25.0


def schedule(random: Random, faults: tuple[Fault, ...], seconds: float, *, pause: float, alone: bool) -> list[Planned]:
    """Return which faults happen when, within a time in seconds.

    Args:
        random: decides.
        faults: to choose from.
        seconds: when the last one is over at the latest, as far as we decide.
        pause: mean time in seconds between the beginnings of two that are mixed.
        alone: whether each happens alone first, as far as two thirds of the time let it, and none for a while after.
            Long ones begin together with the mixed ones.
    """
    planned: list[Planned] = []
    now = REST
    short = [fault for fault in faults if fault.seconds[0] < LONG]
    for fault in random.sample(short, len(short)) if alone else ():
        lasts = random.uniform(*fault.seconds)
        if now + lasts > seconds * ALONE and planned:
            continue
        planned.append(Planned(now, fault, lasts, random.getrandbits(32)))
        now += lasts + REST
    now += CALM if alone else 0.0
    free: dict[str, float] = {}
    for fault in faults:
        if fault not in short and now + fault.seconds[1] <= seconds:
            lasts = random.uniform(*fault.seconds)
            planned.append(Planned(now, fault, lasts, random.getrandbits(32)))
            free |= dict.fromkeys(_parts(fault), now + lasts + REST)
    while (now := now + random.uniform(0.2, 1.8) * pause) < seconds:
        choice = [it for it in short if all(free.get(part, 0) <= now for part in _parts(it))]
        choice = [it for it in choice if now + it.seconds[1] <= seconds]
        if choice:
            fault = random.choices(choice, weights=[it.weight for it in choice])[0]
            lasts = random.uniform(*fault.seconds)
            planned.append(Planned(now, fault, lasts, random.getrandbits(32)))
            free |= dict.fromkeys(_parts(fault), now + lasts + REST)
    return planned


def _parts(fault: Fault) -> tuple[str, ...]:
    return _PARTS_OF_ROLLOUT if fault.part == "rollout" else (fault.part,)


@dataclass(slots=True)
class Havoc:
    """Lets faults happen to a stack, several at the same time but never two to the same part."""

    stack: ChaosStack
    #: Is told how a process ended by itself, and what it wrote last.
    say: Callable[[str], None] = lambda _: None
    windows: list[Window] = field(default_factory=list)
    #: Processes that ended although nobody killed them, by name.
    died: Counter[str] = field(default_factory=Counter)
    _locks: dict[str, Lock] = field(
        default_factory=lambda: {part: Lock() for fault in FAULTS for part in _parts(fault)}
    )

    def wreak(self, planned: Planned) -> None:
        """Let one fault happen, when what happened to its part before is over."""
        with ExitStack() as locks:
            for part in sorted(_parts(planned.fault)):
                locks.enter_context(self._locks[part])
            began = time.time()
            with planned.fault.work(self.stack, Random(planned.seed)) as pids:
                time.sleep(planned.seconds)
            fault = planned.fault
            self.windows.append(
                Window(
                    name=fault.name,
                    began=began,
                    ended=time.time(),
                    kills=fault.kills,
                    part=fault.part,
                    pids=frozenset(pids),
                    loses=fault.loses,
                )
            )

    def supervise(self) -> None:
        """Start again what ended by itself, as an orchestrator does, and take note of it."""
        for name in server_processes(self.stack):
            if self._locks[name].acquire(blocking=False):
                try:
                    process = server_processes(self.stack)[name]
                    if not process.running:
                        self.died[name] += 1
                        self.say(f"{name} ended by itself with {process.wait()}\n{process.log_tail()}")
                        process.launch()
                finally:
                    self._locks[name].release()
