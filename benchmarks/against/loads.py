"""The loads of both servers, and measuring what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

from benchmarks import made, topic_keys
from benchmarks.against.revisions import Subject
from benchmarks.attack.aims import percentile
from benchmarks.bench import gorush_fault
from benchmarks.latency import waits
from benchmarks.made import Made
from benchmarks.running import cpu, idle_cpu, log_after, position, relay, suspended
from wakupush.devnet.parts.processes import wait_until

#: Users whom others query: the keys of their topics are derived before anything is measured.
ASKED = 20
#: Seconds until messages count as lost.
PATIENCE = 120.0


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What messages cost a server, and how they came through."""

    #: Microseconds of a message, by process, without what it uses when there is nothing to do.
    cpu: dict[str, float]
    #: From a backlog, from the first that is read to the last effect.
    per_second: float | None = None
    #: At an even rate: seconds from the node to gorush.
    p99: float | None = None

    @property
    def total(self) -> float:
        """Microseconds of a message in all processes."""
        return sum(self.cpu.values())


@dataclass(frozen=True, kw_only=True)
class Load:
    """Messages of a kind."""

    name: str
    make: Callable[[Subject, int], list[Made]]
    count: int
    #: At an even rate a second; None lets them wait in the node.
    rate: float | None = None
    #: Messages of garbage for each.
    garbage: float = 0.0
    #: What gorush does meanwhile.
    fault: Callable[[Subject], AbstractContextManager[None]] = lambda _: nullcontext()
    #: At most, against c607958: CPU time of a message. At least: messages a second.
    most_cpu: float | None = None
    least_rate: float | None = None


def registrations(subject: Subject, count: int) -> list[Made]:
    pairs = subject.make(partial(made.registration, subject.server), list(range(count)))
    subject.users += [user for _, user in pairs]
    return [message for message, _ in pairs]


def queries(subject: Subject, count: int) -> list[Made]:
    return subject.make(made.query, [subject.users[number % ASKED] for number in range(count)])


def requests(subject: Subject, count: int) -> list[Made]:
    users = [subject.users[number % len(subject.users)] for number in range(count)]
    return subject.make(partial(made.request, subject.server), users)


def garbage(subject: Subject, count: int) -> list[Made]:
    return subject.make(partial(made.garbage, subject.server), list(range(count)))


AT_ONCE, IN_50_MS = "push requests, gorush at once", "push requests, gorush in 50 ms"
LOADS = (
    Load(name="first registrations", make=registrations, count=2000, most_cpu=0.75, least_rate=1.5),
    Load(name="queries of one key", make=queries, count=3000, most_cpu=0.60, least_rate=1.8),
    Load(name=AT_ONCE, make=requests, count=2000, most_cpu=0.60, least_rate=1.8),
    Load(
        name=IN_50_MS,
        make=requests,
        count=2000,
        fault=lambda subject: gorush_fault(subject, kind="delay", seconds=0.05),
        most_cpu=0.60,
    ),
    Load(name="foreign messages", make=garbage, count=8000, most_cpu=0.70, least_rate=1.4),
    Load(name="push requests at 300/s", make=requests, count=4500, rate=300.0, most_cpu=0.60),
    Load(name="push requests at 450/s", make=requests, count=6750, rate=450.0),
    Load(name="push requests at 450/s beside as much garbage", make=requests, count=6750, rate=450.0, garbage=1.0),
)


def warm_up(subject: Subject) -> None:
    """Make users, and let everything happen that a server does only once."""
    relay(subject.stack.node_url, registrations(subject, 500))
    subject.rest()
    topic_keys.set_for(subject.users[:ASKED], subject, subject.connection)
    for make in (queries, requests, garbage):
        relay(subject.stack.node_url, make(subject, 200))
        subject.rest()


def measure(subject: Subject, load: Load) -> Measured:
    """Load a server, and return the cost until everything was done and on the disk."""
    stack, messages = subject.stack, load.make(subject, load.count)
    noise = garbage(subject, int(load.garbage * load.count))
    subject.rest()
    topic_keys.set_others(subject.connection)
    subject.connection.execute("CHECKPOINT")
    per_second = p99 = None
    # The messages that it would find are still in the node's cache.
    with suspended(stack.part("ingest reconcile")), load.fault(subject):
        idle, begun = idle_cpu(stack), time.monotonic()
        if load.rate is None:
            begun, before, per_second = _backlog(subject, messages)
        else:
            before = cpu(stack)
            found = waits(subject, messages, load.rate, noise, load.rate * load.garbage, patience=PATIENCE)
            p99 = percentile(found, 0.99)
            subject.rest()
        subject.connection.execute("CHECKPOINT")
        seconds, after = time.monotonic() - begun, cpu(stack)
    used = {name: after[name] - before[name] - idle[name] * seconds for name in idle}
    return Measured(
        cpu={name: 1e6 * each / len(messages) for name, each in used.items()}, per_second=per_second, p99=p99
    )


def _backlog(subject: Subject, messages: list[Made]) -> tuple[float, dict[str, float], float]:
    """Let messages wait in the node, then be handled; return when that began, what was used before, and the rate."""
    stack, [(before,)] = subject.stack, subject.connection.execute("SELECT now()").fetchall()
    with suspended(stack.part("ingest live")):
        relay(stack.node_url, messages)
        node_log, gorush_log = position(stack.node_url), position(stack.gorush_url)
        used, begun, begun_at = cpu(stack), time.monotonic(), time.time()
    handled = "SELECT count(*), extract(epoch FROM max(received_at))::float8 FROM ledger WHERE received_at > %s"
    wait_until(
        lambda: subject.connection.execute(handled, [before]).fetchone()[0] >= len(messages),
        timeout=PATIENCE,
        what="all are handled",
        interval=0.2,
    )
    subject.rest()
    [(_, last)] = subject.connection.execute(handled, [before]).fetchall()
    effects = [each["arrivedAt"] for each in log_after(stack.node_url, node_log)[0]]
    effects += [each["at"] for each in log_after(stack.gorush_url, gorush_log)[0]]
    return begun, used, len(messages) / (max([last, *effects]) - begun_at)
