"""Deciding on registrations: what is stored, and what is told."""

from dataclasses import replace

import pytest

from support.deciding import (
    ALICE,
    ALLOW,
    BOB,
    GONE,
    IDENTITY,
    MALFORMED,
    MISMATCH,
    NOW,
    PHONE,
    REGISTERED,
    SUCCESS,
    TABLET,
    TOKEN,
    UNSUPPORTED,
    V2,
    WORKER,
    after,
    answers,
    decide_one,
    entry,
    firsts,
    granted,
    installation,
    messages,
    refused,
    registering,
    repeats,
    told,
    unregistering,
)
from wakupush.model.events import Event, EventKind
from wakupush.model.failures import Failure
from wakupush.model.limits import FIRST_REGISTRATIONS, REPEATS
from wakupush.model.platforms import TokenType
from wakupush.model.registrations import Change, Registration, Unregistration
from wakupush.protocol import registration as rules
from wakupush.protocol.application import Type
from wakupush.protocol.registration import RegistrationResponse, parse_response
from wakupush.server.engine.message import Message, Part, RefusedContent
from wakupush.server.registration.decide import decide

UNREGISTERED = ["received", "opened", "unregistered", "answered"]
REPEATED = ["received", "opened", "answered"]


def with_dead_token(known):
    """Return facts in which the platforms said that the stored device tokens are gone."""
    return replace(known, stored={key: replace(stored, token_died=True) for key, stored in known.stored.items()})


NEW_FOR_US = registering(2, user=BOB), registering(2, device=TABLET)


@pytest.mark.parametrize(
    ("known", "asked", "events", "limit", "is_registered"),
    [
        pytest.param(after(), registering(1), REGISTERED, FIRST_REGISTRATIONS, True, id="new"),
        pytest.param(after(), registering(2**64 - 1), REGISTERED, FIRST_REGISTRATIONS, True, id="any version"),
        pytest.param(after(V2), registering(3), REGISTERED, None, True, id="newer"),
        pytest.param(after(V2), registering(9), REGISTERED, None, True, id="much newer"),
        pytest.param(after(GONE), registering(3), REGISTERED, None, True, id="again"),
        pytest.param(after(V2), V2, REPEATED, REPEATS, True, id="repeat"),
        pytest.param(after(GONE), GONE, REPEATED, REPEATS, False, id="repeat of the end"),
        pytest.param(after(V2), unregistering(3), UNREGISTERED, None, False, id="end"),
        pytest.param(after(), unregistering(1), UNREGISTERED, FIRST_REGISTRATIONS, False, id="end of nothing"),
        pytest.param(after(GONE), unregistering(3), UNREGISTERED, None, False, id="end again"),
        pytest.param(after(*NEW_FOR_US), registering(1), REGISTERED, FIRST_REGISTRATIONS, True, id="others are known"),
    ],
)
def test_what_a_registration_brings(known, asked, events, limit, is_registered):
    outcome = decide_one(asked, known)
    assert told(outcome) == events
    limits = {FIRST_REGISTRATIONS: firsts(entry(1)), REPEATS: (repeats(asked, entry(1)),), None: ()}
    assert outcome.limits == limits[limit]
    assert (outcome.change is None) == (events is REPEATED)
    assert outcome.listening == (ALICE.public_key.key_hash if is_registered else None)
    assert outcome.reply.recipient == ALICE.public_key
    assert outcome.reply.type == Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE
    assert parse_response(outcome.reply.inner) == RegistrationResponse(asked.request_id, SUCCESS)


@pytest.mark.parametrize("asked", [V2, registering(2, nonce="sealed anew"), registering(1), unregistering(2)])
def test_nothing_older_revives_a_dead_token(asked):
    outcome = decide_one(asked, with_dead_token(after(V2)))
    assert told(outcome) == refused(Failure.VERSION_OUTDATED)
    assert (outcome.change, outcome.listening) == (None, None)
    assert answers([outcome]) == [MISMATCH]


def test_a_higher_version_revives_a_dead_token():
    revives = registering(3)
    first, second = decide(messages(revives, revives), with_dead_token(after(V2)), ALLOW)
    assert (told(first), told(second)) == (REGISTERED, REPEATED)
    assert isinstance(first.change.registration, Registration)
    assert answers([first, second]) == [SUCCESS, SUCCESS]


def test_what_is_stored():
    asked = registering(3, muted_chat_list=[b"chat"], token_type=TokenType.FIREBASE)
    registration = Registration(
        installation_id=PHONE,
        version=3,
        token_type=TokenType.FIREBASE,
        device_token="token-3",
        access_token=TOKEN,
        grant=granted(ALICE, TOKEN),
        enabled=True,
        apn_topic="",
        allow_from_contacts_only=False,
        block_mentions=False,
        allowed_key_list=(),
        blocked_chat_list=(),
        muted_chat_list=(b"chat",),
        allowed_mentions_chat_list=(),
    )
    assert decide_one(asked, after()).change == Change(asked.installation, asked.request_digest, registration)
    gone = unregistering(4)
    unregistration = Unregistration(installation_id=PHONE, version=4)
    assert decide_one(gone, after(V2)).change == Change(gone.installation, gone.request_digest, unregistration)


@pytest.mark.parametrize(
    ("known", "asked", "failure", "answer"),
    [
        (after(V2), registering(1), Failure.VERSION_OUTDATED, MISMATCH),
        (after(V2), registering(2, nonce="sealed anew"), Failure.VERSION_OUTDATED, MISMATCH),
        (after(V2), unregistering(2), Failure.VERSION_OUTDATED, MISMATCH),
        (after(GONE), registering(2), Failure.VERSION_OUTDATED, MISMATCH),
        (after(GONE), unregistering(1), Failure.VERSION_OUTDATED, MISMATCH),
        (after(), registering(0), Failure.VERSION_ZERO, MALFORMED),
        (after(), registering(1, token_type=0), Failure.TOKEN_TYPE_UNSUPPORTED, UNSUPPORTED),
    ],
)
def test_what_a_registration_is_refused_with(known, asked, failure, answer):
    outcome = decide_one(asked, known)
    assert told(outcome) == refused(failure)
    assert parse_response(outcome.reply.inner) == RegistrationResponse(asked.request_id, answer)
    assert (outcome.change, outcome.listening, outcome.limits) == (None, None, ())


def test_a_registration_above_a_limit_is_refused(monkeypatch):
    monkeypatch.setattr(rules, "LIMITS", rules.Limits(list_items=1))
    outcome = decide_one(registering(1, muted_chat_list=[b"1", b"2"]), after())
    assert told(outcome) == refused(Failure.REGISTRATION_TOO_LARGE)
    assert answers([outcome]) == [MALFORMED]


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (Failure.REGISTRATION_UNDECRYPTABLE, "silence"),
        (Failure.INNER_MALFORMED, "silence"),
        (Failure.REGISTRATION_MALFORMED, MALFORMED),
    ],
)
def test_content_that_cannot_be_read(failure, answer):
    request_id = b"r" * 64
    outcome = decide_one(RefusedContent(ALICE.public_key, failure, request_id), after())
    assert told(outcome) == refused(failure)
    assert answers([outcome]) == [answer]
    if outcome.reply:
        assert outcome.reply.recipient == ALICE.public_key
        assert parse_response(outcome.reply.inner).request_id == request_id
    assert [event.key_pseudonym for event in outcome.events if event.kind is EventKind.REFUSED] == [
        IDENTITY.pseudonym(ALICE.public_key.key_hash)
    ]
    assert {event.installation_pseudonym for event in outcome.events} == {None}


def test_events_tell_when_where_and_of_whom():
    [_, outcome] = decide(messages(registering(1), registering(1, user=BOB)), after(), ALLOW)
    user, device = IDENTITY.pseudonyms(installation(BOB))
    common = {"time": NOW, "worker": WORKER, "trace_id": entry(2).trace_id, "queue": "registration", "latency": 3.0}
    assert outcome.events == (
        Event(
            kind=EventKind.REGISTERED,
            platform="ios",
            queue_wait=2.0,
            batch_size=2,
            key_pseudonym=user,
            installation_pseudonym=device,
            **common,
        ),
    )


@pytest.mark.parametrize(
    ("asked", "platform"),
    [(registering(3), "ios"), (registering(3, token_type=TokenType.FIREBASE), "android"), (unregistering(3), None)],
)
def test_the_platform_is_told_where_there_is_one(asked, platform):
    assert [event.platform for event in decide_one(asked, after(V2)).events] == [platform]


def test_a_message_of_the_future_has_waited_for_no_time():
    [outcome] = decide(messages(registering(1), seen=NOW + 60), after(), ALLOW)
    assert (outcome.events[0].queue_wait, outcome.events[-1].latency) == (0.0, 0.0)


def test_parts_are_forgotten_whatever_becomes_of_the_message():
    part = Part(None, ALICE.public_key)
    contents = [registering(1), registering(1), registering(0), RefusedContent(BOB.public_key, Failure.INNER_MALFORMED)]
    outcomes = decide([Message(entry(number), each, part) for number, each in enumerate(contents)], after(), ALLOW)
    assert [outcome.forget for outcome in outcomes] == [part] * 4
    assert [outcome.entry for outcome in outcomes] == [entry(number) for number in range(4)]


@pytest.mark.parametrize(
    ("known", "asked", "expected"),
    [
        (after(), [registering(2), registering(1), registering(3)], [SUCCESS, MISMATCH, SUCCESS]),
        (after(), [registering(1), registering(2), registering(3)], [SUCCESS] * 3),
        (after(V2), [registering(3), registering(3, nonce="anew"), registering(2)], [SUCCESS, MISMATCH, MISMATCH]),
        (after(V2), [V2, registering(3), V2], [SUCCESS, SUCCESS, MISMATCH]),
        (after(), [registering(1), registering(1), registering(1)], [SUCCESS] * 3),
        (after(V2), [unregistering(3), registering(4)], [SUCCESS] * 2),
        (after(V2), [unregistering(3), registering(3)], [SUCCESS, MISMATCH]),
        (after(V2), [unregistering(3), unregistering(3), registering(2)], [SUCCESS, SUCCESS, MISMATCH]),
        (after(), [registering(0), registering(1)], [MALFORMED, SUCCESS]),
        (after(V2), [registering(5, grant=b""), registering(3)], [MALFORMED, SUCCESS]),
        (after(V2), [registering(1, user=BOB), registering(1, device=TABLET)], [SUCCESS] * 2),
    ],
)
def test_each_registration_sees_those_before_it(known, asked, expected):
    assert answers(decide(messages(*asked), known, ALLOW)) == expected


def test_the_changes_of_a_batch_come_in_its_order():
    outcomes = decide(messages(unregistering(3), registering(4), unregistering(5), registering(6)), after(V2), ALLOW)
    assert [outcome.change.registration.version for outcome in outcomes] == [3, 4, 5, 6]
    assert [outcome.listening is None for outcome in outcomes] == [True, False, True, False]
    assert [outcome.events[0].kind for outcome in outcomes] == [EventKind.UNREGISTERED, EventKind.REGISTERED] * 2
    assert {outcome.limits for outcome in outcomes} == {()}
