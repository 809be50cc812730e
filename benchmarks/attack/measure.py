"""Measuring what messages cost the server, and how they affect honest traffic."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import fmean

from benchmarks.attack import honest
from benchmarks.attack.machine import Peaks, Share, chart_limits, used_by_all, used_by_others
from benchmarks.attack.stored import Stored
from benchmarks.attack.traffic import Message, Traffic, flat, size
from benchmarks.attack.world import World
from benchmarks.loads import waits
from benchmarks.running import cpu, idle_cpu, percentile, relay, suspended

#: Seconds that reconcile has to walk over the messages, and looks back. It walks once a second here, so each message is
#: met as often as with its defaults: every 30 s, two minutes back.
WALKS = 4.0
SETTINGS = {"WAKUPUSH_RECONCILE__OVERLAP": str(WALKS), "WAKUPUSH_RECONCILE__QUERY_WINDOW": str(WALKS)}
#: Bytes that a flood sends at once at most.
MOST_BYTES = 50_000_000
#: Messages that warm the server up.
WARM = 50
#: Seconds until honest traffic beside a flood counts as lost.
PATIENCE = 60.0
#: Shares of the rate of messages that wait at once at which an even rate is tried, each for so many seconds. Tasks are
#: smaller then, so a message costs more.
SHARES = (0.8, 0.65, 0.5, 0.4, 0.3)
TRIED_SECONDS = 15.0
#: The p99 of requests and queries, and the slowest first registration, in seconds, up to which the server keeps up.
KEPT_UP_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What messages cost the server."""

    messages: int
    #: That were sent.
    bytes: int
    #: From the first to the last.
    seconds: float
    #: CPU seconds of each process, without what it uses when there is nothing to do.
    cpu: dict[str, float]
    stored: Stored
    #: Bytes by which the worker process that grew most grew.
    memory: int
    #: By component of the chart: the share of its pod's memory that it needed at most.
    memory_shares: dict[str, float]
    #: Share of the cores that others used.
    others: float

    @property
    def size(self) -> float:
        """Bytes of a message."""
        return self.bytes / self.messages

    @property
    def cpu_seconds(self) -> float:
        """Of a message."""
        return sum(self.cpu.values()) / self.messages

    @property
    def rows(self) -> float:
        """Of a message."""
        return sum(self.stored.rows.values()) / self.messages

    @property
    def stored_for_each_byte(self) -> float:
        return sum(self.stored.bytes.values()) / self.bytes

    @property
    def redis_for_each_byte(self) -> float:
        return self.stored.redis / self.bytes


@dataclass(frozen=True, kw_only=True)
class Felt:
    """How honest traffic was affected."""

    #: Of honest messages, and of noise beside them; a second.
    rate: float
    noise_rate: float
    #: Of requests and queries, in seconds; infinite where so many did not come at all.
    p50: float
    p99: float
    #: Of the slowest first registration.
    slowest_first: float
    lost: int
    #: Share of the cores that was used, by the generator and the node too: near 1 the machine is at its end.
    busy: float
    others: float


def bounds(world: World, traffic: Traffic) -> tuple[int, int]:
    """Return the bytes of a message, and how many there may be at once."""
    [sample] = traffic.make(world, 1)
    return size(sample), max(1, min(traffic.most, MOST_BYTES // size(sample)))


def warm_up(world: World, traffic: Traffic) -> None:
    """Let some messages be handled, so that work that is done only once is not measured."""
    world.send(traffic.make(world, min(WARM, bounds(world, traffic)[1])))


def cost(world: World, traffic: Traffic, count: int) -> Cost:
    """Let messages wait in the node, let the server work them off, and return what that cost."""
    stack = world.stack
    world.derive_nothing()
    most = bounds(world, traffic)[1]
    world.rest()
    time.sleep(WALKS)  # what came before is no longer walked over
    idle = idle_cpu(stack)
    messages = traffic.make(world, min(count, most))
    if not traffic.derives:
        world.derive_nothing()
    world.rest()
    before = Stored.now(world.connection, world.redis)
    world.connection.execute("CHECKPOINT")
    with suspended(stack.reconcile):
        with suspended(stack.ingest):
            relay(stack.node_url, flat(messages))
            others = Share(used_by_others)
            peaks = Peaks({"ingest": stack.ingest, "reconcile": stack.reconcile, "beat": stack.beat, **stack.workers})
            used, start_time = cpu(stack), time.monotonic()
        world.rest()
        seconds = time.monotonic() - start_time
    time.sleep(WALKS)
    world.rest()
    elapsed, after = time.monotonic() - start_time, cpu(stack)
    return Cost(
        messages=len(messages),
        bytes=sum(map(size, messages)),
        seconds=seconds,
        cpu={name: after[name] - used[name] - idle[name] * elapsed for name in idle},
        memory=peaks.growth(stack.workers),
        memory_shares=peaks.shares({name: chart_limits()[name] for name in peaks.names}),
        others=others.share(),
        stored=Stored.now(world.connection, world.redis).since(before),
    )


def capacity(world: World, count: int) -> float:
    """Return how many honest messages a second, at an even rate, the server can handle together with all around it.

    It is one of some shares of the rate at which they come through if all wait at once.
    """
    messages = honest.mixed(world, count)
    world.derive_nothing()
    world.rest()
    start_time = time.monotonic()
    relay(world.stack.node_url, messages)
    world.rest()
    at_once = count / (time.monotonic() - start_time)
    for share in SHARES:
        tried = felt(world, share * at_once, TRIED_SECONDS)
        if max(tried.p99, tried.slowest_first) <= KEPT_UP_SECONDS:
            break
    return share * at_once


def felt(world: World, rate: float, seconds: float, flood: Traffic | None = None) -> Felt:
    """Let honest traffic come at a rate, with twice as much of a flood beside it if there is one."""
    count = min(int(rate * seconds), honest.MOST_MIXED)
    seconds = count / rate
    noise = _noise(world, rate, seconds, flood) if flood else []
    messages = honest.mixed(world, count)
    if flood is None or not flood.derives:
        world.derive_nothing()
    others, busy = Share(used_by_others), Share(used_by_all)
    latencies = waits(world.bench, messages, rate, flat(noise), len(flat(noise)) / seconds, patience=PATIENCE)
    share, used = others.share(), busy.share()
    world.rest()
    kinds = list(islice(cycle(honest.MIX), count))
    others_than_first = [wait for wait, kind in zip(latencies, kinds, strict=True) if kind != "registration"]
    return Felt(
        rate=rate,
        noise_rate=len(noise) / seconds,
        p50=percentile(others_than_first, 0.5),
        p99=percentile(others_than_first, 0.99),
        slowest_first=max(wait for wait, kind in zip(latencies, kinds, strict=True) if kind == "registration"),
        lost=latencies.count(math.inf),
        busy=used,
        others=share,
    )


def _noise(world: World, rate: float, seconds: float, flood: Traffic) -> list[Message]:
    """Return twice as much of a flood as there is honest traffic, or what its bounds let."""
    honest_size = fmean(each.bytes for each in honest.mixed(world, len(honest.MIX)))
    flood_size, most = bounds(world, flood)
    # As many messages are as much, unless they are larger: then as many bytes.
    flood_rate = 2 * rate * min(1.0, honest_size / flood_size)
    return flood.make(world, max(1, min(most, int(flood_rate * seconds))))
