"""Whom a user filters: an observer who sends many requests, and measures when the answers to them are published."""

import random
import time
from bisect import bisect_right
from dataclasses import dataclass, field, replace

import pytest

from support.rows import IOS
from support.served import SHARD, prove, request, trip
from wakupush.devnet.processes import wait_until
from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.server.beat.answers import publish_overdue
from wakupush.server.engine import follow_up, isolation
from wakupush.server.engine.background import ANSWER_THREADS, Later
from wakupush.server.engine.outbox import PUBLISH_CONNECTIONS, Outbox

#: Seconds that a push takes, and that a slow node takes for an answer.
POST_SECONDS = 0.06
SLOW_SECONDS = 0.2
#: Two samples that differ so much by chance once in so many times are said to differ.
SIGNIFICANCE = 0.001
PERMUTATIONS = 2500


@dataclass(frozen=True, slots=True, eq=False)
class WatchedOutbox(Outbox):
    """Notes when each answer is published, on a node that takes so many seconds for it."""

    seconds: float = 0.0
    times: dict[str, float] = field(default_factory=dict)

    def hand_over(self, sealed_answers):
        start_time = time.time()
        for position, answer in enumerate(sealed_answers):
            self.times[answer.trace_id] = start_time + position // PUBLISH_CONNECTIONS * self.seconds
        time.sleep(self.seconds)
        return [None] * len(sealed_answers)


@dataclass
class Observer:
    """Sends requests of two classes at random: to a chat that the receiver mutes, and to another one."""

    server: object
    client: PrivateKey
    device: object
    probes: int

    def waits(self):
        """Return the seconds from request to answer, of the muted and of the others."""
        classes = [True, False] * self.probes
        random.shuffle(classes)
        sent_probes = {}
        for is_muted in classes:
            message = request(self.client, self.server, self.device, chat_id=b"muted" if is_muted else b"chat")
            time.sleep(random.uniform(0, 0.005))
            entry = handle(self.server, message)
            sent_probes[entry.trace_id] = is_muted, entry.seen
        times = self.server.context.outbox.times
        wait_until(lambda: sent_probes.keys() <= times.keys(), timeout=60, what="all answers")
        return [
            [times[name] - arrival_time for name, (is_muted, arrival_time) in sent_probes.items() if is_muted is which]
            for which in (True, False)
        ]

    def finds_difference(self):
        """Return whether the classes differ, and still do when it looks again."""
        return all(chance_of(*self.waits()) < SIGNIFICANCE for _ in range(2))


def handle(server, message):
    """Give a worker a message as a task of its own, and do not wait for what follows."""
    entry = Entry(SHARD, message_hash(SHARD, message), time.time(), message)
    isolation.handle(server.context, DISPATCH, [entry], alone=False)
    return entry


def chance_of(first, second):
    """Return how likely two samples of one distribution differ as much, by a permutation test of two statistics.

    These are their means, and their mean distances from the middle in the order of all.
    """
    waits, size, others = first + second, len(first), len(second)
    ordered = sorted(waits)
    distances = [abs(bisect_right(ordered, wait) - len(waits) / 2) for wait in waits]

    def differences(places):
        """Return how far the means of the values at these places are from those of the others."""
        sums = [(sum(map(values.__getitem__, places)), sum(values)) for values in (waits, distances)]
        return [abs(part / size - (whole - part) / others) for part, whole in sums]

    measured = differences(range(size))
    above = [0, 0]
    for _ in range(PERMUTATIONS):
        by_chance = differences(random.sample(range(len(waits)), size))
        above = [count + (value >= real) for count, value, real in zip(above, by_chance, measured, strict=True)]
    return min(1.0, 2 * (min(above) + 1) / (PERMUTATIONS + 1))


def breaker_open(server):
    trip(server.context.posts.breaker)


def no_free_slot(server):
    slots = server.context.posts.slots
    assert slots.reserve(IOS, 1000) > 0


def skewed_samples(server):
    """A stranger's pushes to an own device fail at once, more often than others succeed."""
    for _ in range(120):
        handle(server, request(*server.stranger))


def slow_node(server):
    server.context = replace(server.context, outbox=replace(server.context.outbox, seconds=SLOW_SECONDS))


STATES = [breaker_open, no_free_slot, skewed_samples, slow_node]


@pytest.fixture
def observer(open_server, client):
    """An observer of a server that has delivered to its devices, and whose answers leave after the first step."""
    server = open_server(
        limits={"pushes_per_device_per_minute": 10**6}, gorush={"concurrency": 16}, breaker={"pause": 3600}
    )
    device = server.register(client, muted_chat_list=[b"muted"], device_token=f"slow-{1000 * POST_SECONDS:.0f}")
    prove(client, server, device)
    context = server.context
    context.post_times.percentile = POST_SECONDS
    watched = WatchedOutbox(context.pool, context.outbox.publisher)
    stranger = PrivateKey.generate()
    server.stranger = stranger, server, server.register(stranger, device_token="throttled")
    server.context = replace(context, answers=Later(ANSWER_THREADS), outbox=watched)
    yield Observer(server, client, device, probes=50)
    server.context.followers.wait()
    server.context.answers.close()


@pytest.mark.parametrize("probes", [100, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("state", STATES)
def test_times_of_answers_show_no_filter(observer, state, probes):
    observer.probes = probes
    state(observer.server)
    assert not observer.finds_difference()


class OneThread:
    """Answers to filtered requests have a thread of their own."""

    def __init__(self, answers):
        self.filtered, self.others = Later(), answers

    def do(self, due, size, work, batch):
        is_posted = any(answer.outcome.delivery_keys for answer in batch.answers)
        (self.others if is_posted else self.filtered).do(due, size, work, batch)

    def wait_until(self, due):
        self.others.wait_until(due)

    def close(self):
        self.filtered.close()
        self.others.close()


@pytest.mark.parametrize("state", STATES)
def test_the_observer_finds_a_difference(observer, monkeypatch, state):
    """Answers leave when their post ends, those of filtered requests after a wait of others, and by one thread."""
    server = observer.server
    state(server)
    recent = [0.003 if state is skewed_samples else POST_SECONDS + random.uniform(0, 0.02) for _ in range(100)]

    def leaves(engine, _, answers):
        is_posted = any(answer.outcome.delivery_keys for answer in answers)
        begins = engine.posts.breaker.is_closed(IOS) and state is not no_free_slot
        wait = (POST_SECONDS + 0.01 if begins else 0.0) if is_posted else random.choice(recent)
        return time.monotonic() + wait

    if state is slow_node:
        server.context = replace(server.context, answers=OneThread(server.context.answers))
    else:
        monkeypatch.setattr(follow_up, "_leaves", leaves)
    assert observer.finds_difference()


def test_answers_wait_in_the_outbox(server, client, monkeypatch):
    """Filtered or not: beat publishes them if their worker dies before their time."""
    device = server.register(client, muted_chat_list=[b"muted"])
    monkeypatch.setattr(server.context.answers, "end", list)
    requests = [request(client, server, device, chat_id=chat) for chat in (b"muted", b"chat")]
    server.handle(DISPATCH, *requests, request(client, server, device, access_token="wrong"))
    assert server.outcomes(client) == []
    assert server.rows("SELECT count(*) FROM answers") == [(3,)]
    server.rows("UPDATE answers SET publish_at = now() RETURNING 1")
    assert publish_overdue(server.context) == 3
    assert sorted(server.outcomes(client)) == [["WRONG_TOKEN"], ["success"], ["success"]]


def test_all_answers_of_a_task_leave_together(server, client, monkeypatch):
    """An error that is known from the beginning, too."""
    device, published, publish = server.register(client), [], Outbox.publish
    monkeypatch.setattr(
        Outbox, "publish", lambda outbox, answers: published.append(len(answers)) or publish(outbox, answers)
    )
    server.handle(DISPATCH, request(client, server, device), request(client, server, device, access_token="wrong"))
    assert published == [2]
