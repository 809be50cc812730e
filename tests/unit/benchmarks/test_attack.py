"""The arithmetic of `make attack`, its table of floods, and that what it makes is what it says."""

import math
from functools import partial

import pytest

from benchmarks.attack import strangers
from benchmarks.attack.aims import Line, Verdict, verdict
from benchmarks.attack.measure import Cost, Felt
from benchmarks.attack.report import Result, verdicts
from benchmarks.attack.stored import Stored
from benchmarks.attack.traffic import Flood, Power, size
from benchmarks.attack.world import registered
from wakupush.model.entries import Entry
from wakupush.model.failures import Failure
from wakupush.pb.push_notification_pb2 import PushNotificationRequest
from wakupush.protocol import topics
from wakupush.protocol.application import Type
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.server.engine.message import Part
from wakupush.server.engine.open import open_asymmetric
from wakupush.waku.codec import decode_message, parse

SERVER = PrivateKey.generate()
KEY = SERVER.public_key.compressed
PERSONAL, PARTITIONED = topics.server_content_topics(SERVER.public_key)


def decode_post(post):
    return decode_message(parse(post.body.encode()))


def opened(message):
    [only] = message
    return open_asymmetric(Entry("/shard", bytes(32), 0.0, decode_post(only)), Identity.of(SERVER))


@pytest.mark.parametrize(
    ("points", "at", "seconds"),
    [
        ([(1000, 2.0), (3000, 6.0)], 1000, 2.0),
        ([(1000, 2.0), (3000, 6.0)], 300, 2.0),  # none is smaller
        ([(1000, 2.0), (3000, 6.0)], 2000, 4.0),
        ([(1000, 2.0), (3000, 6.0)], 10_000, 20.0),
        ([(1000, 2.0)], 10_000, 2.0),
    ],
)
def test_honest_messages_cost_linearly(points, at, seconds):
    assert Line(points).at(at) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("figures", "expected"),
    [([2.0, 1.0], Verdict.PASS), ([2.1, 1.9], Verdict.NOISY), ([2.1, 2.2], Verdict.MISS), ([math.inf], Verdict.MISS)],
)
def test_runs_that_do_not_agree_say_nothing(figures, expected):
    assert verdict(figures, 2.0) is expected


def cost(*, messages=10, cpu=0.02, growth=3000, memory=0.5, others=0.0):
    grown = Stored({"ledger": messages, "events": 2 * messages}, {"ledger": growth, "events": growth}, 500)
    used = {"postgres": cpu / 4, "worker": 3 * cpu / 4}
    shares = {"ingest": 0.3, "dispatch": memory}
    return Cost(
        messages=messages, bytes=1000, seconds=1, cpu=used, stored=grown, memory=9, memory_shares=shares, others=others
    )


def felt(p99, slowest_first=2.0, others=0.0):
    return Felt(rate=10, noise_rate=20, p50=0.1, p99=p99, slowest_first=slowest_first, lost=0, busy=0.5, others=others)


FLOOD = Flood(name="flood", make=lambda _world, _count: [], power=Power.PUBLISH, honest="request")
LINES = [Line([(100, 0.001)])] * 2


def test_the_aims():
    quiet = Result(FLOOD, [cost(cpu=0.02, growth=2000), cost(cpu=0.019, growth=1900)], [(felt(0.1), felt(0.15))] * 2)
    assert [aim.verdict for aim in quiet.aims(LINES)] == [Verdict.PASS] * 5
    loud = Result(
        FLOOD,
        [cost(cpu=0.03, memory=1.1), cost(cpu=0.021, memory=1.2)],
        [(felt(0.1), felt(0.16, slowest_first=11)), (felt(0.1), felt(math.inf, slowest_first=math.inf))],
    )
    assert [aim.verdict for aim in loud.aims(LINES)] == [Verdict.MISS] * 5


def test_busy_machine_excuses_only_latency():
    result = Result(FLOOD, [cost(others=0.5), cost()], [(felt(0.1), felt(0.2))] * 2)
    assert [aim.verdict for aim in result.aims(LINES)] == [
        *(Verdict.PASS, Verdict.PASS, Verdict.MISS, Verdict.NOISY, Verdict.PASS)
    ]


def test_an_unfinished_flood_is_a_miss():
    assert verdicts([Result(FLOOD, stopped="waited in vain")], {"request": LINES}) == [Verdict.MISS]


def test_junk_costs_a_key_agreement(monkeypatch):
    agreed = []
    shared_key = PrivateKey.shared_key
    monkeypatch.setattr(PrivateKey, "shared_key", lambda self, other: agreed.append(1) or shared_key(self, other))
    [junk] = strangers.junk(PARTITIONED, 300, 0.0, 0)
    assert len(decode_post(junk).payload) == 300
    assert opened((junk,)) is Failure.NOT_FOR_US
    assert agreed == [1]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (partial(strangers.sealed_noise, KEY, 2000), Failure),
        (partial(strangers.lonely_part, KEY, 300, 2), Part),
        (partial(strangers.unsealable, KEY, 300), Type.PUSH_NOTIFICATION_REGISTRATION),
        (partial(strangers.empty_items, KEY, 5000), Type.PUSH_NOTIFICATION_REQUEST),
        (partial(strangers.update, KEY, [SERVER.secret], 3), Type.PUSH_NOTIFICATION_REGISTRATION),
    ],
)
def test_what_is_sealed_to_the_server_is_opened_by_it(make, expected):
    content = opened(make(7))
    assert isinstance(content, expected) if isinstance(expected, type) else content.type == expected


def test_items_that_hold_nothing_are_items():
    content = opened(strangers.empty_items(KEY, 5000, 0))
    assert len(PushNotificationRequest.FromString(content.inner).requests) == 5000


def test_a_request_names_each_device_in_turn():
    users = [registered(KEY, PrivateKey.generate())[1] for _ in range(3)]
    for token, tokens in ((None, [users[2].access_token, users[0].access_token]), ("wrong", ["wrong"] * 2)):
        items = PushNotificationRequest.FromString(opened(strangers.naming(KEY, users, 2, token, 1)).inner).requests
        assert [item.public_key for item in items] == [users[2].key_hash, users[0].key_hash]
        assert [item.access_token for item in items] == tokens


def test_copies_differ_in_what_the_hash_covers():
    message = strangers.junk(PARTITIONED, 300, 0.0, 0)
    [same], [version], [meta], [wrapped] = (
        strangers.changed(message, **fields) for fields in ({}, {"version": 0}, {"meta": b"m"}, {"timestamp": 1})
    )
    assert {decode_post(each).payload for each in (same, version, meta, wrapped)} == {decode_post(message[0]).payload}
    assert same == message[0]
    assert version.hash == same.hash
    assert version.body != same.body
    assert len({each.hash for each in (same, meta, wrapped)}) == 3


def test_a_large_message_is_as_large_as_its_parts():
    message, _ = registered(KEY, PrivateKey.generate(), muted_chat_list=[bytes(64)] * 10_000)
    assert len(message) > 1
    assert size(message) == sum(part.bytes for part in message)
    assert 660_000 < size(message) < 680_000
    assert all(part.bytes <= 150_000 for part in message)
