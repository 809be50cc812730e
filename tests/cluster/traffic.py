"""Requests of clients to the rehearsed server, and whether each was pushed once."""

import time
from collections import Counter
from functools import partial

from benchmarks import made
from benchmarks.running import delivery_key_of, log_after, makers, position, relay
from cluster.rehearsal import Rehearsal

USERS = 50
#: Requests a second, and for how many seconds.
Load = tuple[tuple[float, float], ...]


class ScenarioFailedError(Exception):
    """The chart did not keep what it promises; the text says what."""


def check(condition: bool, text: str) -> None:
    """Let the scenario fail with this text unless the promise was kept."""
    if not condition:
        raise ScenarioFailedError(text)


def register(rehearsal: Rehearsal) -> list[made.User]:
    server = rehearsal.parts.key.public_key.compressed
    registrations = [made.registration(server, number) for number in range(USERS)]
    with rehearsal.connect() as connection:
        count = "SELECT count(*) FROM registrations"
        [before] = connection.execute(count).fetchone()
        relay(rehearsal.parts.node_url, [message for message, _ in registrations])
        rehearsal.wait(lambda: connection.execute(count).fetchone()[0] == before + USERS, "users are registered")
    return [user for _, user in registrations]


def send(rehearsal: Rehearsal, users: list[made.User], load: Load) -> tuple[list[made.Made], int]:
    """Let requests arrive at the node at these rates, and return them and where gorush's log was before."""
    server = rehearsal.parts.key.public_key.compressed
    count = int(sum(rate * seconds for rate, seconds in load))
    with makers() as pool:
        whom = [users[number % len(users)] for number in range(count)]
        requests = list(pool.map(partial(made.request, server), whom, chunksize=50))
    since = position(rehearsal.parts.gorush_url)
    rehearsal.say(f"{len(requests)} requests")
    start_time, count_so_far, until = time.monotonic(), 0, 0.0
    for rate, seconds in load:
        first, until = until, until + seconds
        base = count_so_far
        while (now := time.monotonic() - start_time) < until:
            due_count = min(len(requests), base + int(rate * (now - first)))
            relay(rehearsal.parts.node_url, requests[count_so_far:due_count])
            count_so_far = max(count_so_far, due_count)
            time.sleep(0.1)
    relay(rehearsal.parts.node_url, requests[count_so_far:])
    return requests, since


def delivered(rehearsal: Rehearsal, requests: list[made.Made], since: int, *, may_double: bool = False) -> str:
    """Wait until each request was pushed, and say so; fail if one never is, or twice for no reason.

    `may_double` takes a second attempt for a reason: the outcome of the first was lost.
    """
    keys = {each.delivery_key for each in requests}

    def pushes() -> list[str]:
        entries = log_after(rehearsal.parts.gorush_url, since)[0]
        return [key for entry in entries if (key := delivery_key_of(entry)) in keys]

    rehearsal.wait(lambda: keys <= set(pushes()), f"{len(keys)} pushes", timeout=300)
    time.sleep(5)
    pushed_keys = pushes()
    doubled = {key for key, times in Counter(pushed_keys).items() if times > 1}
    excused = _attempted_again(rehearsal) if may_double else set()
    if doubled - excused:
        raise ScenarioFailedError(f"{len(doubled - excused)} of {len(keys)} pushes were doubled for no reason")
    return f"{len(keys)} of {len(keys)} requests pushed, {f'{len(doubled)} twice' if doubled else 'once each'}"


def _attempted_again(rehearsal: Rehearsal) -> set[str]:
    with rehearsal.connect() as connection:
        return {key.hex() for (key,) in connection.execute("SELECT delivery_key FROM deliveries WHERE attempt > 1")}
