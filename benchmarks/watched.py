"""The memory of watched topics in Redis, packed and in other ways, for a thousand to a hundred million users.

``python -m benchmarks.watched`` fills an embedded Redis with random topics, two for each user, prints a table, and
writes ``docs/operating/images/watched.svg``. It takes some minutes and 1.5 GB of memory.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from redis import Redis
from redis.client import Pipeline
from rich.console import Console

from wakupush.devnet.parts.redis import RedisServer
from wakupush.redis import watched

FIGURE = Path("docs/operating/images/watched.svg")
USERS = [1_000, 10_000, 100_000, 1_000_000, 10_000_000]
#: Of the packed topics alone: the others would not fit.
MANY = 100_000_000
BUCKETS = 65_536
#: Topics of a poll that is asked for.
POLL = 100
RANDOM = Random(15)

Bucket = tuple[bytes, list[int]]


def buckets(users: int) -> Iterator[Bucket]:
    """Yield the first two bytes of topics, and the last two of each as numbers: as many as chance has it."""
    chance = 2 * users / BUCKETS
    left = 2 * users
    for number in range(BUCKETS):
        rest = BUCKETS - number
        count = _binomial(left, 1 / rest) if chance < 30 else round(RANDOM.gauss(chance, math.sqrt(chance)))
        count = min(left, max(0, count))
        left -= count
        if count:
            yield number.to_bytes(2, "big"), RANDOM.sample(range(BUCKETS), count)


def _binomial(tries: int, chance: float) -> int:
    """Return how many of some tries succeed, each with a small chance."""
    if chance >= 1:
        return tries
    count, at = 0, 0
    while (at := at + 1 + int(math.log(1 - RANDOM.random()) / math.log(1 - chance))) <= tries:
        count += 1
    return count


def _rests(numbers: list[int]) -> list[bytes]:
    return [number.to_bytes(2, "big") for number in numbers]


def as_packed(pipe: Pipeline, prefix: bytes, numbers: list[int]) -> None:
    """Put them where `wakupush.redis.watched` has them; it is checked below that it finds them."""
    pipe.hset(watched.KEY, prefix, b"".join(_rests(numbers)))


def as_set(pipe: Pipeline, prefix: bytes, numbers: list[int]) -> None:
    """Put them into one set, as 0.1.0 does."""
    pipe.sadd("set", *(prefix + rest for rest in _rests(numbers)))


def as_intsets(pipe: Pipeline, prefix: bytes, numbers: list[int]) -> None:
    """Put them into a set of numbers for each bucket: 2 bytes each up to set-max-intset-entries."""
    pipe.sadd(b"watched:" + prefix, *(number - 2**15 for number in numbers))


def as_bitmaps(pipe: Pipeline, prefix: bytes, numbers: list[int]) -> None:
    """Put them into a bitmap for each bucket, as long as its highest bit asks for."""
    bits = bytearray(max(numbers) // 8 + 1)
    for number in numbers:
        bits[number // 8] |= 0x80 >> number % 8
    pipe.set(b"watched:" + prefix, bytes(bits))


WAYS: dict[str, Callable[[Pipeline, bytes, list[int]], None]] = {
    "one set": as_set,
    "bitmaps": as_bitmaps,
    "sets of integers": as_intsets,
    "packed": as_packed,
}


def measured(redis: Redis, way: str, users: int) -> tuple[int, float, float]:
    """Return bytes in Redis, and microseconds of Redis to ask for a poll and to add a user (0 where not measured)."""
    redis.flushall()
    before = redis.info("memory")["used_memory"]
    pipe = redis.pipeline(transaction=False)
    some: list[bytes] = []
    for number, (prefix, numbers) in enumerate(buckets(users)):
        WAYS[way](pipe, prefix, numbers)
        if len(some) < POLL // 2:
            some.append(prefix + numbers[-1].to_bytes(2, "big"))
        if number % 200 == 0:
            pipe.execute()
    pipe.execute()
    used = redis.info("memory")["used_memory"] - before
    if way != "packed":
        return used, 0.0, 0.0
    others = [RANDOM.randbytes(4) for _ in range(POLL - len(some))]
    assert set(some) <= watched.among(redis, some + others)
    asking = _microseconds(redis, lambda: watched.among(redis, some + others))
    adding = _microseconds(redis, lambda: watched.add(redis, [RANDOM.randbytes(4), RANDOM.randbytes(4)]))
    return used, asking, adding


def _microseconds(redis: Redis, do: Callable[[], object]) -> float:
    """Return what one script takes inside Redis."""
    do()
    redis.config_resetstat()
    for _ in range(200):
        do()
    return float(redis.info("commandstats")["cmdstat_evalsha"]["usec_per_call"])


def figure(found: dict[str, list[tuple[int, int]]]) -> str:
    """Return the SVG: bytes over users, both by their powers of ten."""
    width, height, left, top = 620, 330, 70, 20
    colours = ("#d62728", "#9467bd", "#1f77b4", "#2ca02c", "#7f7f7f")
    low, high = 4, 10.3

    def place(users: float, size: float) -> tuple[float, float]:
        across = (math.log10(users) - 3) / 5
        up = (math.log10(size) - low) / (high - low)
        return left + across * width, top + height * (1 - up)

    parts = []
    for power in range(low, 11):
        _, y = place(1000, 10**power)
        name = {4: "10 kB", 5: "100 kB", 6: "1 MB", 7: "10 MB", 8: "100 MB", 9: "1 GB", 10: "10 GB"}[power]
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
    for power in range(3, 9):
        x, _ = place(10**power, 1)
        parts.append(f'<text x="{x:.1f}" y="{top + height + 16}" text-anchor="middle">{10**power:,} users</text>')
    for index, ((name, points), colour) in enumerate(zip(found.items(), colours, strict=True)):
        line = " ".join("{:.1f},{:.1f}".format(*place(*point)) for point in points)
        dashes = ' stroke-dasharray="5 4"' if name == "one bitmap" else ""
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.8"{dashes}/>')
        parts.append(f'<text x="{left + 16}" y="{top + 16 + 16 * index}" style="fill:{colour}">{name}</text>')
    style = "<style>text{font:12px sans-serif;fill:#333}</style>"
    box = f'viewBox="0 0 {left + width + 60} {top + height + 30}"'
    background = f'<rect width="{left + width + 60}" height="{top + height + 30}" fill="white"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{style}{background}{"".join(parts)}</svg>\n'


def main() -> None:
    """Measure all, print it, and write the figure."""
    console = Console()
    found: dict[str, list[tuple[int, int]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder), appendonly=False) as server:
        redis = Redis(port=server.port)
        for way in WAYS:
            for users in [*USERS, MANY] if way == "packed" else USERS:
                used, asking, adding = measured(redis, way, users)
                found[way].append((users, used))
                times = f", a poll of {POLL} {asking:.0f} µs, a user {adding:.0f} µs" if asking else ""
                console.print(f"{way:>16} {users:>11,} users {used:>13,} bytes {used / users:>9.1f} a user{times}")
        redis.close()
    # One string for all topics is as long as the highest says.
    found["one bitmap"] = [(users, 2**29) for users in (USERS[0], MANY)]
    FIGURE.write_text(figure(found))


if __name__ == "__main__":
    main()
