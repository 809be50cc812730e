"""From the arrival at the node to the effect, alone and beside a flood: a push at gorush, or an answer at the node."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial

from benchmarks import made
from benchmarks.running import Bench, delivery_key_of, log_after, position, relay_at
from wakupush.devnet.parts.processes import WaitTimeoutError

SECONDS = 15
#: Seconds after which a push counts as lost.
TIMEOUT = 600
#: Push requests a second that are far below what one process can do.
QUIET_RATE = 100.0
#: Messages of garbage for each push request.
FLOODS = {"alone": 0, "with as much garbage": 1, "with five times as much garbage": 5}


def latencies(bench: Bench, rate: float, garbage: float, seconds: float = SECONDS) -> list[float]:
    """Return the seconds from node to gorush of each push, at a rate of requests and of garbage a second, sorted."""
    count = int(rate * seconds)
    users = [bench.users[number % len(bench.users)] for number in range(count)]
    sent = bench.make(partial(made.request, bench.server), users)
    noise = bench.make(partial(made.garbage, bench.server), list(range(int(garbage * seconds))))
    found = waits(bench, sent, rate, noise, garbage, patience=TIMEOUT)
    if math.inf in found:
        raise WaitTimeoutError(f"{count} pushes did not come in {TIMEOUT} s")
    return sorted(found)


def waits(
    bench: Bench,
    sent: Sequence[made.Made],
    rate: float,
    noise: Sequence[made.Made] = (),
    noise_rate: float = 0.0,
    *,
    patience: float,
) -> list[float]:
    """Let messages arrive at the node, and noise beside them, and return how long each of the messages took.

    Args:
        bench: that is loaded.
        sent: each has a delivery key or a topic on which it is answered, and no other message the same.
        rate: of these, a second.
        noise: messages that are not waited for.
        noise_rate: of the noise, a second.
        patience: seconds to wait for the messages that were sent last.

    Returns:
        Seconds, infinite for messages without an effect.
    """
    stack = bench.stack
    node_log, gorush_log = position(stack.node_url), position(stack.gorush_url)
    deadline = time.monotonic() + len(sent) / rate + patience
    futures = [bench.pool.submit(relay_at, stack.node_url, sent, rate)]
    if noise:
        futures.append(bench.pool.submit(relay_at, stack.node_url, noise, noise_rate))
    hashes, effects = {f"0x{each.hash}" for each in sent}, {_effect(each) for each in sent}
    arrived: dict[str, float] = {}
    done: dict[str, float] = {}
    while len(done) < len(effects) and time.monotonic() < deadline:
        # Both logs are bounded: what is not read while it happens may be gone.
        new, node_log = log_after(stack.node_url, node_log)
        found = [(each["contentTopic"], each["arrivedAt"]) for each in new]
        arrived |= {each["hash"]: each["arrivedAt"] for each in new if each["hash"] in hashes}
        new, gorush_log = log_after(stack.gorush_url, gorush_log)
        for effect, at in [*found, *((delivery_key_of(each), each["at"]) for each in new)]:
            if effect in effects:
                done.setdefault(effect, at)  # what is tried again arrived before
        time.sleep(0.5)
    for future in futures:
        future.result()
    return [done.get(_effect(each), math.inf) - arrived.get(f"0x{each.hash}", 0.0) for each in sent]


def _effect(message: made.Made) -> str:
    return message.delivery_key or message.answered_on


def percentiles(found: list[float]) -> str:
    middle, late = found[len(found) // 2], found[int(len(found) * 0.99)]
    return f"p50 {1000 * middle:.0f} ms, p99 {1000 * late:.0f} ms"
