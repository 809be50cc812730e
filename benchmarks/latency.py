"""From the arrival at the node to the arrival at gorush, alone and beside a flood of garbage."""

from __future__ import annotations

import time
from functools import partial

from benchmarks import made
from benchmarks.running import Bench, delivery_key_of, log_after, position, relay_at
from wakupush.devnet.processes import WaitTimeoutError

SECONDS = 15
#: Seconds after which a push counts as lost.
TIMEOUT = 600
#: Push requests a second that are far below what one process can do.
QUIET_RATE = 100.0
#: Messages of garbage for each push request.
FLOODS = {"alone": 0, "with as much garbage": 1, "with five times as much garbage": 5}


def latencies(bench: Bench, rate: float, garbage: float, seconds: float = SECONDS) -> list[float]:
    """Return the seconds from node to gorush of each push, at a rate of requests and of garbage a second, sorted."""
    stack = bench.stack
    count = int(rate * seconds)
    users = [bench.users[number % len(bench.users)] for number in range(count)]
    sent = bench.make(partial(made.request, bench.server), users)
    noise = bench.make(partial(made.garbage, bench.server), list(range(int(garbage * seconds))))
    node_log, gorush_log = position(stack.node_url), position(stack.gorush_url)
    futures = [bench.pool.submit(relay_at, stack.node_url, sent, rate)]
    if noise:
        futures.append(bench.pool.submit(relay_at, stack.node_url, noise, garbage))
    hashes, delivery_keys = {f"0x{each.hash}" for each in sent}, {each.delivery_key for each in sent}
    arrived: dict[str, float] = {}
    pushed: dict[str, float] = {}
    deadline = time.monotonic() + TIMEOUT
    while len(pushed) < count:
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"{count} pushes did not come in {TIMEOUT} s")
        # Both logs are bounded: what is not read while it happens may be gone.
        new, node_log = log_after(stack.node_url, node_log)
        arrived |= {each["hash"]: each["arrivedAt"] for each in new if each["hash"] in hashes}
        new, gorush_log = log_after(stack.gorush_url, gorush_log)
        for each in new:
            key = delivery_key_of(each)
            if key in delivery_keys:
                pushed.setdefault(key, each["at"])  # what is tried again arrived before
        time.sleep(0.5)
    for future in futures:
        future.result()
    return sorted(pushed[each.delivery_key] - arrived[f"0x{each.hash}"] for each in sent)


def percentiles(found: list[float]) -> str:
    middle, late = found[len(found) // 2], found[int(len(found) * 0.99)]
    return f"p50 {1000 * middle:.0f} ms, p99 {1000 * late:.0f} ms"
