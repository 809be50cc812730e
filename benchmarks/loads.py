"""Messages of each kind that load a server, and measuring what they cost it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from benchmarks import made
from benchmarks.made import Made
from benchmarks.running import (
    Bench,
    cpu,
    delivery_key_of,
    gorush_fault,
    handled,
    idle_cpu,
    log_after,
    now,
    percentile,
    position,
    relay,
    relay_at,
    rest,
    set_other_topic_keys,
    set_topic_keys,
    suspended,
)
from wakupush.devnet.processes import wait_until

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
    make: Callable[[Bench, int], list[Made]]
    count: int
    #: At an even rate a second; None lets them wait in the node.
    rate: float | None = None
    #: Messages of garbage for each.
    garbage: float = 0.0
    #: The fault that gorush has meanwhile; None for none.
    fault: dict[str, object] | None = None


def registrations(bench: Bench, count: int) -> list[Made]:
    pairs = bench.make(partial(made.registration, bench.server), list(range(count)))
    bench.users += [user for _, user in pairs]
    return [message for message, _ in pairs]


def queries(bench: Bench, count: int) -> list[Made]:
    return bench.make(made.query, [bench.users[number % ASKED] for number in range(count)])


def requests(bench: Bench, count: int) -> list[Made]:
    users = [bench.users[number % len(bench.users)] for number in range(count)]
    return bench.make(partial(made.request, bench.server), users)


def garbage(bench: Bench, count: int) -> list[Made]:
    return bench.make(partial(made.garbage, bench.server), list(range(count)))


AT_ONCE = "push requests, gorush at once"
LOADS = (
    Load(name="first registrations", make=registrations, count=2000),
    Load(name="queries of one key", make=queries, count=3000),
    Load(name=AT_ONCE, make=requests, count=2000),
    Load(name="push requests, gorush in 50 ms", make=requests, count=2000, fault={"kind": "delay", "seconds": 0.05}),
    Load(name="foreign messages", make=garbage, count=8000),
    Load(name="push requests at 300/s", make=requests, count=4500, rate=300.0),
    Load(name="push requests at 450/s", make=requests, count=6750, rate=450.0),
    Load(name="push requests at 450/s beside as much garbage", make=requests, count=6750, rate=450.0, garbage=1.0),
)


def warm_up(bench: Bench) -> None:
    """Make users, and let everything happen that a server does only once."""
    relay(bench.stack.node_url, registrations(bench, 500))
    rest(bench)
    set_topic_keys(bench, bench.users[:ASKED])
    for make in (queries, requests, garbage):
        relay(bench.stack.node_url, make(bench, 200))
        rest(bench)


def measure(bench: Bench, load: Load) -> Measured:
    """Load a server, and return the cost until everything was done and on the disk."""
    stack, messages = bench.stack, load.make(bench, load.count)
    noise = garbage(bench, int(load.garbage * load.count))
    rest(bench)
    set_other_topic_keys(bench)
    bench.connection.execute("CHECKPOINT")
    per_second = p99 = None
    # The messages that it would find are still in the node's cache.
    fault = gorush_fault(stack.gorush_url, **load.fault) if load.fault else nullcontext()
    with suspended(bench.part("ingest reconcile")), fault:
        idle, start_time = idle_cpu(stack), time.monotonic()
        if load.rate is None:
            start_time, before, per_second = backlog(bench, messages)
        else:
            before = cpu(stack)
            latencies = waits(bench, messages, load.rate, noise, load.rate * load.garbage, patience=PATIENCE)
            p99 = percentile(latencies, 0.99)
            rest(bench)
        bench.connection.execute("CHECKPOINT")
        seconds, after = time.monotonic() - start_time, cpu(stack)
    used = {name: after[name] - before[name] - idle[name] * seconds for name in idle}
    return Measured(
        cpu={name: 1e6 * each / len(messages) for name, each in used.items()}, per_second=per_second, p99=p99
    )


def backlog(bench: Bench, messages: list[Made]) -> tuple[float, dict[str, float], float]:
    """Let messages wait in the node, then be handled; return when that began, what was used before, and the rate."""
    stack, before = bench.stack, now(bench)
    with suspended(bench.part("ingest live")):
        relay(stack.node_url, messages)
        node_log, gorush_log = position(stack.node_url), position(stack.gorush_url)
        used, start_time, begun_at = cpu(stack), time.monotonic(), time.time()
    wait_until(
        lambda: handled(bench, before)[0] >= len(messages), timeout=PATIENCE, what="all are handled", interval=0.2
    )
    rest(bench)
    _, last = handled(bench, before)
    effects = [each["arrivedAt"] for each in log_after(stack.node_url, node_log)[0]]
    effects += [each["at"] for each in log_after(stack.gorush_url, gorush_log)[0]]
    return start_time, used, len(messages) / (max([last, *effects]) - begun_at)


def waits(
    bench: Bench,
    messages: Sequence[made.Made],
    rate: float,
    noise: Sequence[made.Made] = (),
    noise_rate: float = 0.0,
    *,
    patience: float,
) -> list[float]:
    """Let messages arrive at the node, and noise beside them, and return how long each of the messages took.

    Args:
        bench: that is loaded.
        messages: each has a delivery key or a topic on which it is answered, and no other message the same.
        rate: of these, a second.
        noise: messages that are not waited for.
        noise_rate: of the noise, a second.
        patience: seconds to wait for the messages that were sent last.

    Returns:
        Seconds, infinite for messages without an effect.
    """
    stack = bench.stack
    node_log, gorush_log = position(stack.node_url), position(stack.gorush_url)
    deadline = time.monotonic() + len(messages) / rate + patience
    futures = [bench.pool.submit(relay_at, stack.node_url, messages, rate)]
    if noise:
        futures.append(bench.pool.submit(relay_at, stack.node_url, noise, noise_rate))
    hashes, effects = {f"0x{each.hash}" for each in messages}, {_effect(each) for each in messages}
    arrived: dict[str, float] = {}
    effect_times: dict[str, float] = {}
    while len(effect_times) < len(effects) and time.monotonic() < deadline:
        # Both logs are bounded: what is not read while it happens may be gone.
        new, node_log = log_after(stack.node_url, node_log)
        arrivals = [(each["contentTopic"], each["arrivedAt"]) for each in new]
        arrived |= {each["hash"]: each["arrivedAt"] for each in new if each["hash"] in hashes}
        new, gorush_log = log_after(stack.gorush_url, gorush_log)
        for effect, at in [*arrivals, *((delivery_key_of(each), each["at"]) for each in new)]:
            if effect in effects:
                effect_times.setdefault(effect, at)  # what is tried again arrived before
        time.sleep(0.5)
    for future in futures:
        future.result()
    return [effect_times.get(_effect(each), math.inf) - arrived.get(f"0x{each.hash}", 0.0) for each in messages]


def _effect(message: made.Made) -> str:
    return message.delivery_key or message.answered_on
