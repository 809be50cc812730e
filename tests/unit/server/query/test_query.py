"""Deciding on queries: what is revealed, to whom, what it costs, and when there is silence."""

from dataclasses import replace

import pytest

from support.deciding import (
    ALICE,
    ALLOW,
    BOB,
    CAROL,
    IDENTITY,
    NOW,
    PHONE,
    TABLET,
    TOKEN,
    WATCH,
    context,
    entry,
    failures,
    hold_back,
    kinds,
    messages,
    query,
)
from wakupush.model.events import EventKind
from wakupush.model.failures import Failure
from wakupush.model.limits import ANSWERS, MINUTE, USER_ANSWERS, Limit
from wakupush.model.queues import QUERY
from wakupush.model.registrations import AnswerSizes, QueriedDevice
from wakupush.operate import identities
from wakupush.protocol.application import Type
from wakupush.protocol.query import parse_response
from wakupush.runtime.settings import WorkerSettings
from wakupush.server.engine.message import Deferred, Part
from wakupush.server.engine.outcome import Outcome
from wakupush.server.engine.seal import seal
from wakupush.server.query.charge import ANSWER_BYTES, SMALL_BYTES, USER_FLOOR, charge
from wakupush.server.query.decide import decide
from wakupush.server.query.lookup import QueriedUsers

OPENED = [EventKind.RECEIVED, EventKind.OPENED]
ALICE_HASH, BOB_HASH = (user.public_key.key_hash for user in (ALICE, BOB))


def device(user, installation_id, **fields):
    return QueriedDevice(
        **{
            "key_hash": user.public_key.key_hash,
            "installation_id": installation_id,
            "version": 1,
            "access_token": TOKEN,
            "grant": bytes(65),
            "allow_from_contacts_only": False,
            "allowed_key_list": (),
            **fields,
        }
    )


A_PHONE, A_TABLET = device(ALICE, PHONE), device(ALICE, TABLET)
B_PHONE = device(BOB, PHONE, version=7, allow_from_contacts_only=True, allowed_key_list=(b"sealed",))
SIZES = AnswerSizes({ALICE_HASH: 300, BOB_HASH: 5_000})
USERS = QueriedUsers(SIZES, {ALICE_HASH: [A_PHONE, A_TABLET], BOB_HASH: [B_PHONE]})


def decide_query(query, *, users=USERS, verdicts=ALLOW):
    [outcome] = decide(messages(query), users, verdicts, context(QUERY))
    return outcome


def limits_of(query, sizes, *, limits=None, topic="topic"):
    return list(charge(messages(query, topic=topic), AnswerSizes(sizes), context(QUERY, limits=limits)))


@pytest.mark.parametrize(
    ("users", "devices"),
    [
        ((ALICE,), [A_PHONE, A_TABLET]),
        ((BOB,), [B_PHONE]),
        ((ALICE, BOB), [A_PHONE, A_TABLET, B_PHONE]),
        ((BOB, CAROL, ALICE), [B_PHONE, A_PHONE, A_TABLET]),
        ((CAROL, BOB), [B_PHONE]),
    ],
)
def test_devices_are_revealed_in_order_of_the_query(users, devices):
    outcome = decide_query(query(*users, number=9))
    response = parse_response(outcome.replies[0].inner)
    assert [(info.key_hash, info.installation_id) for info in response.infos] == [
        (device.key_hash, device.installation_id) for device in devices
    ]
    assert response.message_id == (9).to_bytes(32, "big")
    assert outcome.replies[0].recipient == CAROL.public_key
    assert outcome.replies[0].type == Type.PUSH_NOTIFICATION_QUERY_RESPONSE
    assert kinds(outcome) == [*OPENED, EventKind.QUERIED, EventKind.ANSWERED]


def test_contacts_only_reveals_the_list_but_no_token():
    *_, info = parse_response(decide_query(query(ALICE, BOB)).replies[0].inner).infos
    assert (info.version, info.access_token, info.allowed_key_list) == (7, "", (b"sealed",))


def test_each_server_key_answers_for_its_devices():
    """A sender drops a device whose grant names another key than the one that signed the answer."""
    today = identities.rotate(IDENTITY)
    phone = replace(A_PHONE, server_key=today.id_of(today.public_key))
    lost = replace(A_PHONE, installation_id=WATCH, server_key=b"retired.")
    users = QueriedUsers(SIZES, {ALICE_HASH: [A_TABLET, phone, lost], BOB_HASH: [B_PHONE]})
    [outcome] = decide(messages(query(ALICE, BOB, number=9)), users, ALLOW, context(QUERY, identity=today))
    answers = [(reply.signer, parse_response(reply.inner)) for reply in outcome.replies]
    assert [(signer, [info.installation_id for info in answer.infos]) for signer, answer in answers] == [
        (IDENTITY.public_key, [TABLET, PHONE]),
        (today.public_key, [PHONE]),
    ]
    assert {answer.message_id for _, answer in answers} == {(9).to_bytes(32, "big")}
    sealed = seal([outcome], today, most_bytes=100_000)
    assert len(sealed[0]) == 2
    [silent] = decide(messages(query(ALICE)), replace(users, devices={ALICE_HASH: [lost]}), ALLOW, context(QUERY))
    assert (silent.replies, failures(silent)) == ((), [Failure.NOTHING_KNOWN])


@pytest.mark.parametrize("users", [(CAROL,), (CAROL, CAROL), ()])
def test_a_query_for_unknown_users_is_silent(users):
    outcome = decide_query(query(*users))
    assert outcome == Outcome(entry=entry(1), events=outcome.events)
    assert (kinds(outcome), failures(outcome)) == ([*OPENED, EventKind.REFUSED], [Failure.NOTHING_KNOWN])
    assert limits_of(query(*users), SIZES.bytes_by_user) == []


@pytest.mark.parametrize(
    ("users", "pseudonym"),
    [((ALICE,), IDENTITY.queried_pseudonym(ALICE_HASH, period=0)), ((ALICE, BOB), None), ((ALICE, CAROL), None)],
)
def test_only_a_single_user_has_a_pseudonym(users, pseudonym):
    pseudonyms = {
        event.kind: (event.key_pseudonym, event.installation_pseudonym) for event in decide_query(query(*users)).events
    }
    assert pseudonyms.pop(EventKind.QUERIED) == (pseudonym, None)
    assert set(pseudonyms.values()) == {(None, None)}


def test_no_event_joins_a_query_with_its_user():
    outcome = decide_query(query(ALICE))
    [queried] = [event for event in outcome.events if event.kind is EventKind.QUERIED]
    others = [event for event in outcome.events if event is not queried]
    assert {(event.time, event.queue, event.trace_id) for event in others} == {(NOW, "query", entry(1).trace_id)}
    assert (queried.trace_id, queried.time, queried.latency, queried.queue_wait) == (None, NOW - NOW % 3600, None, None)
    # A join of all rows that a transaction wrote meets a name that no other event has.
    alice = IDENTITY.installation(ALICE_HASH, PHONE)
    assert queried.key_pseudonym not in {*IDENTITY.pseudonyms(alice, 0), IDENTITY.user_pseudonym(alice.key_hash, 0)}


def test_an_answer_is_counted_for_each_user_and_in_all():
    """Whatever a stranger chooses, the sender's key, the topic or the shard, it is counted for the same."""
    alice, bob = (IDENTITY.pseudonym(key_hash).hex() for key_hash in (ALICE_HASH, BOB_HASH))
    limits = {"answer_bytes_per_user_per_minute": 7, "answer_bytes_per_minute": 8}
    sizes = {ALICE_HASH: 300_000, BOB_HASH: 500_000}
    for topic, sender in (("one", CAROL), ("another", BOB)):
        total = Limit(ANSWERS, 8, MINUTE, entry(1).hash, cost=800_000)
        assert limits_of(query(ALICE, CAROL, BOB, sender=sender), sizes, limits=limits, topic=topic) == [
            total,
            Limit(USER_ANSWERS, 7, MINUTE, entry(1).hash, 0, alice, 300_000, USER_FLOOR, total),
            Limit(USER_ANSWERS, 7, MINUTE, entry(1).hash, 2, bob, 500_000, USER_FLOOR, total),
        ]


def test_a_small_answer_is_not_counted_for_its_user():
    """A query asks for up to 1,000 users, and all that a task counts takes time of Redis."""
    sizes = {ALICE_HASH: SMALL_BYTES, BOB_HASH: SMALL_BYTES + 1}
    counted = [limit.position for limit in limits_of(query(ALICE, BOB), sizes) if limit.name == USER_ANSWERS]
    assert counted == [1]


@pytest.mark.parametrize(
    ("size", "repeat_after", "times"), [(100_000, 1.2, 2), (150_000, 1.2, 1), (100_000, 0, 1), (3_000_000, 1.2, 1)]
)
def test_an_answer_is_counted_as_often_as_it_leaves(size, repeat_after, times):
    """An answer of several parts is not repeated."""
    settings = context(QUERY).settings.model_copy(update={"worker": WorkerSettings(repeat_answers_after=repeat_after)})
    limits = charge(messages(query(ALICE)), AnswerSizes({ALICE_HASH: size}), context(QUERY, settings=settings))
    assert [limit.cost for limit in limits] == [times * size] * 2


def test_an_empty_answer_is_not_counted():
    assert limits_of(query(ALICE, BOB), {ALICE_HASH: 0}) == []


@pytest.mark.parametrize(
    "limit",
    limits_of(query(ALICE, BOB), {ALICE_HASH: 20_000, BOB_HASH: 30_000}),
    ids=lambda limit: f"{limit.name}-{limit.position}",
)
def test_each_limit_defers_a_query(limit):
    outcome = decide_query(query(ALICE, BOB), verdicts=hold_back(limit))
    assert outcome == Outcome(entry=entry(1), events=(), deferred=Deferred(for_key=False))


def test_too_large_answers_are_silent_and_not_counted():
    """They would not be answered later either."""
    largest = {ALICE_HASH: ANSWER_BYTES - 1, BOB_HASH: 1}
    assert len(limits_of(query(ALICE, BOB), largest)) == 2
    sizes = largest | {BOB_HASH: 2}
    assert limits_of(query(ALICE, BOB), sizes) == []
    held_back = hold_back(Limit(ANSWERS, 1, MINUTE, entry(1).hash))
    outcome = decide_query(query(ALICE, BOB), users=QueriedUsers(AnswerSizes(sizes), {}), verdicts=held_back)
    assert outcome == Outcome(entry=entry(1), events=outcome.events)
    assert (kinds(outcome), failures(outcome)) == ([*OPENED, EventKind.REFUSED], [Failure.QUERY_LIMIT])


def test_each_outcome_ends_its_parts():
    part = Part(None, None, None)
    outcomes = decide(messages(query(ALICE), query(CAROL), last_part=part), USERS, ALLOW, context(QUERY))
    assert [outcome.last_part for outcome in outcomes] == [part] * 2
