"""Deciding on registrations: what is stored, and how they are answered."""

import pytest

from support.deciding import (
    ALICE,
    BOB,
    IDENTITY,
    NOTHING_STORED,
    NOW,
    PHONE,
    TABLET,
    WORKER,
    context,
    decide_registrations,
    entry,
    failures,
    installation,
    kinds,
    messages,
    registration_answers,
    registration_message,
    stored_installations,
    unregistration_message,
)
from wakupush.model.events import Event, EventKind
from wakupush.model.failures import Answer, Failure
from wakupush.model.limits import Verdicts
from wakupush.model.platforms import TokenType
from wakupush.model.queues import REGISTRATION
from wakupush.model.registrations import Change, Registration, Unregistration
from wakupush.protocol import registration as rules
from wakupush.protocol.application import Type
from wakupush.protocol.registration import RegistrationResponse, parse_response
from wakupush.server.engine.message import Part
from wakupush.server.registration.decide import RegistrationEffect, decide
from wakupush.server.registration.read import RefusedRegistration

SUCCESS, MALFORMED, MISMATCH = None, Answer.MALFORMED_MESSAGE, Answer.VERSION_MISMATCH
REPEATED = [EventKind.RECEIVED, EventKind.OPENED, EventKind.ANSWERED]
REGISTERED, UNREGISTERED, REFUSED = (
    [EventKind.RECEIVED, EventKind.OPENED, kind, EventKind.ANSWERED]
    for kind in (EventKind.REGISTERED, EventKind.UNREGISTERED, EventKind.REFUSED)
)
V2, END2 = registration_message(2), unregistration_message(2)
AFTER_V2, AFTER_END2 = stored_installations(V2), stored_installations(END2)
WITH_DEAD_TOKEN = stored_installations(V2, token_died=True)
OTHERS = stored_installations(registration_message(2, user=BOB), registration_message(2, device=TABLET))


@pytest.mark.parametrize(
    ("installations", "content", "events", "is_registered"),
    [
        pytest.param(NOTHING_STORED, registration_message(1), REGISTERED, True, id="new"),
        pytest.param(NOTHING_STORED, registration_message(2**64 - 1), REGISTERED, True, id="any version"),
        pytest.param(AFTER_V2, registration_message(3), REGISTERED, True, id="newer"),
        pytest.param(AFTER_V2, registration_message(9), REGISTERED, True, id="much newer"),
        pytest.param(AFTER_END2, registration_message(3), REGISTERED, True, id="again"),
        pytest.param(AFTER_V2, V2, REPEATED, True, id="repeat"),
        pytest.param(AFTER_END2, END2, REPEATED, False, id="repeat of the end"),
        pytest.param(AFTER_V2, unregistration_message(3), UNREGISTERED, False, id="end"),
        pytest.param(NOTHING_STORED, unregistration_message(1), UNREGISTERED, False, id="end of nothing"),
        pytest.param(AFTER_END2, unregistration_message(3), UNREGISTERED, False, id="end again"),
        pytest.param(OTHERS, registration_message(1), REGISTERED, True, id="others are stored"),
    ],
)
def test_success_is_answered(installations, content, events, is_registered):
    [outcome] = decide_registrations(content, installations=installations)
    assert kinds(outcome) == events
    assert (outcome.effect.change is None) == (events is REPEATED)
    assert outcome.effect.watched_user == (ALICE.public_key.key_hash if is_registered else None)
    assert outcome.replies[0].recipient == ALICE.public_key
    assert outcome.replies[0].type == Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE
    assert parse_response(outcome.replies[0].inner) == RegistrationResponse(content.request_id, SUCCESS)


@pytest.mark.parametrize(
    "content", [V2, registration_message(2, nonce="sealed again"), registration_message(1), unregistration_message(2)]
)
def test_nothing_older_revives_a_dead_token(content):
    [outcome] = decide_registrations(content, installations=WITH_DEAD_TOKEN)
    assert kinds(outcome) == REFUSED
    assert failures(outcome) == [Failure.VERSION_OUTDATED] * 2
    assert outcome.effect is None
    assert registration_answers([outcome]) == [MISMATCH]


def test_a_higher_version_revives_a_dead_token():
    newer = registration_message(3)
    first, second = decide_registrations(newer, newer, installations=WITH_DEAD_TOKEN)
    assert (kinds(first), kinds(second)) == (REGISTERED, REPEATED)
    assert isinstance(first.effect.change.registration, Registration)
    assert registration_answers([first, second]) == [SUCCESS, SUCCESS]


def test_changes_hold_what_is_stored():
    content = registration_message(3, muted_chat_list=[b"chat"], token_type=TokenType.FIREBASE)
    registration = rules.of(content.message)
    end = unregistration_message(4)
    first, second = decide_registrations(content, end)
    assert first.effect == RegistrationEffect(
        Change(content.installation, content.request_digest, registration), ALICE.public_key.key_hash
    )
    unregistration = Unregistration(installation_id=PHONE, version=4)
    assert second.effect == RegistrationEffect(Change(end.installation, end.request_digest, unregistration), None)


@pytest.mark.parametrize(
    ("installations", "content", "failure", "answer"),
    [
        (AFTER_V2, registration_message(1), Failure.VERSION_OUTDATED, MISMATCH),
        (AFTER_V2, registration_message(2, nonce="sealed again"), Failure.VERSION_OUTDATED, MISMATCH),
        (AFTER_V2, unregistration_message(2), Failure.VERSION_OUTDATED, MISMATCH),
        (AFTER_END2, registration_message(2), Failure.VERSION_OUTDATED, MISMATCH),
        (AFTER_END2, unregistration_message(1), Failure.VERSION_OUTDATED, MISMATCH),
        (NOTHING_STORED, registration_message(0), Failure.VERSION_ZERO, MALFORMED),
        (NOTHING_STORED, registration_message(1, grant=bytes(65)), Failure.GRANT_INVALID, MALFORMED),
        (
            NOTHING_STORED,
            registration_message(1, token_type=0),
            Failure.TOKEN_TYPE_UNSUPPORTED,
            Answer.UNSUPPORTED_TOKEN_TYPE,
        ),
    ],
)
def test_failures_are_answered(installations, content, failure, answer):
    [outcome] = decide_registrations(content, installations=installations)
    assert kinds(outcome) == REFUSED
    assert failures(outcome) == [failure] * 2
    assert parse_response(outcome.replies[0].inner) == RegistrationResponse(content.request_id, answer)
    assert outcome.effect is None


def test_too_large_registrations_are_refused(monkeypatch):
    monkeypatch.setattr(rules, "LIMITS", rules.Limits(list_items=1))
    [outcome] = decide_registrations(registration_message(1, muted_chat_list=[b"1", b"2"]))
    assert failures(outcome) == [Failure.REGISTRATION_TOO_LARGE] * 2
    assert registration_answers([outcome]) == [MALFORMED]


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (Failure.REGISTRATION_UNDECRYPTABLE, Answer.SILENCE),
        (Failure.INNER_MALFORMED, Answer.SILENCE),
        (Failure.REGISTRATION_MALFORMED, MALFORMED),
    ],
)
def test_unreadable_registrations_are_refused(failure, answer):
    request_id = b"r" * 64
    [outcome] = decide_registrations(RefusedRegistration(ALICE.public_key, IDENTITY.public_key, request_id, failure))
    if answer is Answer.SILENCE:
        assert kinds(outcome) == [EventKind.RECEIVED, EventKind.OPENED, EventKind.REFUSED]
        assert failures(outcome) == [failure]
    else:
        assert kinds(outcome) == REFUSED
        assert failures(outcome) == [failure] * 2
        assert outcome.replies[0].recipient == ALICE.public_key
        assert parse_response(outcome.replies[0].inner).request_id == request_id
    assert registration_answers([outcome]) == [answer]
    assert [event.key_pseudonym for event in outcome.events if event.kind is EventKind.REFUSED] == [
        IDENTITY.user_pseudonym(ALICE.public_key.key_hash, period=0)
    ]
    assert {event.installation_pseudonym for event in outcome.events} == {None}


def test_events_say_when_where_and_of_whom():
    [_, outcome] = decide_registrations(registration_message(1), registration_message(1, user=BOB))
    user, device = IDENTITY.pseudonyms(installation(BOB), period=0)
    assert outcome.events == (
        Event(
            kind=EventKind.REGISTERED,
            time=NOW,
            worker=WORKER,
            trace_id=entry(2).trace_id,
            queue="registration",
            latency=3.0,
            platform="ios",
            queue_wait=2.0,
            shard=32,
            batch_size=2,
            key_pseudonym=user,
            installation_pseudonym=device,
        ),
    )


@pytest.mark.parametrize(
    ("content", "platform"),
    [
        (registration_message(3), "ios"),
        (registration_message(3, token_type=TokenType.FIREBASE), "android"),
        (unregistration_message(3), None),
    ],
)
def test_events_name_the_platform(content, platform):
    [outcome] = decide_registrations(content, installations=AFTER_V2)
    assert [event.platform for event in outcome.events] == [platform]


def test_messages_of_the_future_have_not_waited():
    future = messages(registration_message(1), seen=NOW + 60)
    [outcome] = decide(future, NOTHING_STORED, Verdicts(), context(REGISTRATION))
    assert (outcome.events[0].queue_wait, outcome.events[-1].latency) == (0.0, 0.0)


def test_each_outcome_ends_its_parts():
    part = Part(None, ALICE.public_key, IDENTITY.public_key)
    refused = RefusedRegistration(BOB.public_key, IDENTITY.public_key, bytes(64), Failure.INNER_MALFORMED)
    batch = messages(
        *(registration_message(1), registration_message(1), registration_message(0), refused), last_part=part
    )
    outcomes = decide(batch, NOTHING_STORED, Verdicts(), context(REGISTRATION))
    assert [outcome.last_part for outcome in outcomes] == [part] * 4
    assert [outcome.entry for outcome in outcomes] == [message.entry for message in batch]
