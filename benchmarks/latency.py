"""From the arrival at the node to the effect, alone and beside a flood: a push at gorush, or an answer at the node."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from benchmarks import made
from benchmarks.running import Bench, delivery_key_of, log_after, position, relay_at


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
