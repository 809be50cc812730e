"""Deciding on queries: what is revealed, to whom, and when there is silence."""

import pytest

from support.deciding import ALICE, ALLOW, BOB, CAROL, IDENTITY, NOW, PHONE, TABLET, TOKEN, entry, facts, messages, told
from wakupush.model.events import EventKind
from wakupush.model.failures import Failure
from wakupush.model.limits import ANSWERS, MINUTE, USER_ANSWERS, Limit
from wakupush.model.queues import QUERY
from wakupush.model.registrations import QueriedDevice
from wakupush.protocol.application import Type
from wakupush.protocol.query import parse_response
from wakupush.runtime.settings import LimitSettings
from wakupush.server.engine import budget
from wakupush.server.engine.message import Message, OpenedQuery, Part, RefusedContent
from wakupush.server.query.decide import decide

QUERIED = ["received", "opened", "queried", "answered"]


def refused(failure):
    return ["received", "opened", f"refused: {failure.label}"]


def device(user, name, **fields):
    return QueriedDevice(
        **{
            "key_hash": user.public_key.key_hash,
            "installation_id": name,
            "version": 1,
            "access_token": TOKEN,
            "grant": bytes(65),
            "allow_from_contacts_only": False,
            "allowed_key_list": (),
            **fields,
        }
    )


DEVICES = {
    ALICE.public_key.key_hash: [device(ALICE, PHONE), device(ALICE, TABLET)],
    BOB.public_key.key_hash: [
        device(BOB, PHONE, version=7, allow_from_contacts_only=True, allowed_key_list=(b"sealed",))
    ],
}


def asking(*users, asker=CAROL, number=1):
    return OpenedQuery(asker.public_key, number.to_bytes(32, "big"), tuple(user.public_key.key_hash for user in users))


def known(**limits):
    return facts(QUERY, devices=DEVICES, limits=limits)


def revealed(outcome):
    infos = parse_response(outcome.reply.inner).infos
    return [(info.key_hash, info.installation_id) for info in infos]


A_PHONE, A_TABLET, B_PHONE = ((each.key_hash, each.installation_id) for devices in DEVICES.values() for each in devices)


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        ((ALICE,), [A_PHONE, A_TABLET]),
        ((BOB,), [B_PHONE]),
        ((ALICE, BOB), [A_PHONE, A_TABLET, B_PHONE]),
        ((BOB, CAROL, ALICE), [B_PHONE, A_PHONE, A_TABLET]),
        ((CAROL, BOB), [B_PHONE]),
    ],
)
def test_what_is_known_is_revealed_in_the_order_of_the_question(users, expected):
    [outcome] = decide(messages(asking(*users, number=9)), known(), ALLOW)
    assert revealed(outcome) == expected
    assert outcome.reply.recipient == CAROL.public_key
    assert outcome.reply.type == Type.PUSH_NOTIFICATION_QUERY_RESPONSE
    assert parse_response(outcome.reply.inner).message_id == (9).to_bytes(32, "big")
    assert told(outcome) == QUERIED
    assert outcome.limits == ()


def test_of_contacts_only_the_list_is_revealed_and_not_the_token():
    [outcome] = decide(messages(asking(ALICE, BOB)), known(), ALLOW)
    *_, info = parse_response(outcome.reply.inner).infos
    assert (info.version, info.access_token, info.allowed_key_list) == (7, "", (b"sealed",))


@pytest.mark.parametrize("users", [(CAROL,), (CAROL, CAROL), ()])
def test_of_what_nobody_knows_there_is_silence(users):
    [outcome] = decide(messages(asking(*users)), known(), ALLOW)
    assert (outcome.reply, outcome.limits) == (None, ())
    assert told(outcome) == refused(Failure.NOTHING_KNOWN)


@pytest.mark.parametrize(
    ("users", "pseudonym"),
    [((ALICE,), IDENTITY.queried_pseudonym(ALICE.public_key.key_hash)), ((ALICE, BOB), None), ((ALICE, CAROL), None)],
)
def test_who_is_asked_for_is_told_of_a_single_user_alone(users, pseudonym):
    [outcome] = decide(messages(asking(*users)), known(), ALLOW)
    shown = {event.kind: (event.key_pseudonym, event.installation_pseudonym) for event in outcome.events}
    assert shown.pop(EventKind.QUERIED) == (pseudonym, None)
    assert set(shown.values()) == {(None, None)}


def test_no_event_joins_a_query_with_who_is_asked_for():
    [outcome] = decide(messages(asking(ALICE)), known(), ALLOW)
    [queried] = [event for event in outcome.events if event.kind is EventKind.QUERIED]
    others = [event for event in outcome.events if event is not queried]
    assert {(event.time, event.queue, event.trace_id) for event in others} == {(NOW, "query", entry(1).trace_id)}
    assert (queried.trace_id, queried.time, queried.latency, queried.queue_wait) == (None, NOW - NOW % 3600, None, None)
    # What joins all that a transaction wrote finds a name that no other event has.
    alice = IDENTITY.installation(ALICE.public_key.key_hash, PHONE)
    assert queried.key_pseudonym not in {*IDENTITY.pseudonyms(alice), IDENTITY.pseudonym(alice.key_hash)}


@pytest.mark.parametrize("failure", [Failure.QUERY_LIMIT, Failure.QUERY_WITHOUT_KEYS, Failure.INNER_MALFORMED])
def test_content_that_is_refused_is_met_by_silence(failure):
    [outcome] = decide(messages(RefusedContent(CAROL.public_key, failure)), known(), ALLOW)
    assert (outcome.reply, outcome.limits) == (None, ())
    assert told(outcome) == refused(failure)


def test_an_answer_is_charged_to_each_known_user_and_to_all():
    """Whatever a stranger chooses, the asker's key, the topic or the shard, the charge is the same."""
    keys = [user.public_key.key_hash for user in (ALICE, CAROL, BOB)]
    sizes = {keys[0]: 300, keys[2]: 5_000}
    alice, bob = (IDENTITY.pseudonym(key).hex() for key in (keys[0], keys[2]))
    limits = LimitSettings(answer_bytes_per_user_per_minute=7, answer_bytes_per_minute=8)
    for topic in ("one", "another"):
        message = entry(1, topic=topic)
        assert budget.of_query(message, keys, sizes, IDENTITY, limits) == (
            Limit(ANSWERS, 8, MINUTE, message.hash, cost=5_300),
            Limit(USER_ANSWERS, 7, MINUTE, message.hash, 0, alice, 300),
            Limit(USER_ANSWERS, 7, MINUTE, message.hash, 1, bob, 5_000),
        )


def test_a_query_for_nobody_who_is_known_is_charged_to_nobody():
    keys = [user.public_key.key_hash for user in (ALICE, BOB)]
    assert budget.of_query(entry(1), keys, {keys[0]: 0}, IDENTITY, LimitSettings()) == ()


def test_the_parts_of_a_query_are_forgotten_whatever_becomes_of_it():
    part = Part(None, None)
    contents = [asking(ALICE), asking(CAROL), RefusedContent(CAROL.public_key, Failure.QUERY_LIMIT)]
    outcomes = decide([Message(entry(number), each, part) for number, each in enumerate(contents)], known(), ALLOW)
    assert [outcome.forget for outcome in outcomes] == [part] * 3
