"""The limits of registrations: which ones each is counted for, and what happens above them."""

import pytest

from support.deciding import (
    ALICE,
    BOB,
    IDENTITY,
    NOTHING_STORED,
    PHONE,
    TABLET,
    WATCH,
    context,
    decide_registrations,
    entry,
    failures,
    hold_back,
    kinds,
    messages,
    registration_answers,
    registration_message,
    stored_installations,
    unregistration_message,
)
from wakupush.model.events import EventKind
from wakupush.model.failures import Answer, Failure
from wakupush.model.limits import FIRST_REGISTRATIONS, HOUR, INSTALLATIONS, MINUTE, REPEATS, Limit
from wakupush.model.queues import REGISTRATION
from wakupush.server.engine.outcome import Outcome
from wakupush.server.registration.charge import charge
from wakupush.server.registration.installations import Installations
from wakupush.server.registration.read import RefusedRegistration

SUCCESS, MISMATCH, INTERNAL = None, Answer.VERSION_MISMATCH, Answer.INTERNAL_ERROR
V2, END2 = registration_message(2), unregistration_message(2)
ON_TABLET, END_ON_TABLET = registration_message(1, device=TABLET), unregistration_message(2, device=TABLET)
#: Its grant has the right length, and is not Alice's.
WITH_WRONG_GRANT = registration_message(5, grant=bytes(65))


def limits_of(*contents, installations=NOTHING_STORED, **limits):
    """Return the limits that registrations of one task are counted for."""
    return list(charge(messages(*contents), installations, context(REGISTRATION, limits=limits)))


def first_limits(number=1, *, total=100_000, of_user=20):
    """Return the limits of a first registration of Alice, in the envelope of a number."""
    alice = IDENTITY.pseudonym(ALICE.public_key.key_hash).hex()
    first = Limit(FIRST_REGISTRATIONS, total, HOUR, entry(number).hash)
    return [first, Limit(INSTALLATIONS, of_user, HOUR, entry(number).hash, key=alice, after=first)]


def repeat_limit(content, number=1):
    return Limit(REPEATS, 3, MINUTE, entry(number).hash, key=content.request_digest.hex())


@pytest.mark.parametrize(
    ("registrations", "content", "answer"),
    [
        ([ON_TABLET], registration_message(1), INTERNAL),
        ([END2, ON_TABLET], registration_message(3), INTERNAL),
        ([ON_TABLET], ON_TABLET, SUCCESS),
        ([ON_TABLET], registration_message(2, device=TABLET), SUCCESS),
        ([END_ON_TABLET], registration_message(1), SUCCESS),
    ],
)
def test_installations_of_a_key_are_limited(registrations, content, answer):
    [outcome] = decide_registrations(
        content, installations=stored_installations(*registrations), limits={"installations_per_key": 1}
    )
    assert registration_answers([outcome]) == [answer]
    assert failures(outcome) == ([Failure.INSTALLATION_LIMIT] * 2 if answer else [])
    assert (outcome.effect is None) == (answer is INTERNAL)


def test_one_installation_too_many_counts_as_repeat():
    one_more = limits_of(ON_TABLET, installations=stored_installations(V2), installations_per_key=1)
    assert one_more == [repeat_limit(ON_TABLET)]


def test_unmentioned_installations_count_too():
    outcomes = decide_registrations(
        *(registration_message(1, device=device) for device in (PHONE, TABLET)),
        installations=Installations(counts={ALICE.public_key.key_hash: 2}),
        limits={"installations_per_key": 3},
    )
    assert registration_answers(outcomes) == [SUCCESS, INTERNAL]


@pytest.mark.parametrize(
    ("registrations", "content", "limits"),
    [
        ([], registration_message(1), first_limits()),
        ([], registration_message(2**64 - 1), first_limits()),
        ([], unregistration_message(1), first_limits()),
        ([], WITH_WRONG_GRANT, first_limits()),
        ([], registration_message(0), [repeat_limit(registration_message(0))]),
        ([], registration_message(1, grant=b""), [repeat_limit(registration_message(1, grant=b""))]),
        ([V2], registration_message(3), []),
        ([V2], registration_message(1), [repeat_limit(registration_message(1))]),
        ([V2], unregistration_message(3), []),
        ([END2], registration_message(3), []),
        ([V2], V2, [repeat_limit(V2)]),
        ([END2], END2, [repeat_limit(END2)]),
        ([registration_message(2, user=BOB), ON_TABLET], registration_message(1), first_limits()),
    ],
)
def test_first_registrations_and_repeats_are_counted(registrations, content, limits):
    assert limits_of(content, installations=stored_installations(*registrations)) == limits


def test_a_repeat_with_a_dead_token_counts_as_refused():
    assert limits_of(V2, installations=stored_installations(V2, token_died=True)) == [repeat_limit(V2)]


@pytest.mark.parametrize(
    "content",
    [
        registration_message(1),
        RefusedRegistration(ALICE.public_key, IDENTITY.public_key, b"r" * 64, Failure.REGISTRATION_MALFORMED),
    ],
)
def test_refused_registrations_are_answered_seldom(content):
    """Anybody can send a recorded one in new envelopes: each cost an answer."""
    installations = stored_installations(V2)
    [limit] = limits_of(content, installations=installations)
    assert limit == Limit(REPEATS, 3, MINUTE, entry(1).hash, key=limit.key)
    [answered] = decide_registrations(content, installations=installations)
    assert answered.replies
    [silent] = decide_registrations(content, installations=installations, verdicts=hold_back(limit))
    assert (failures(silent), silent.replies) == ([Failure.REPEATED_TOO_OFTEN], ())


def test_a_task_counts_as_if_one_by_one():
    limits = limits_of(
        registration_message(1),
        registration_message(1),
        registration_message(2),
        registration_message(1),
        unregistration_message(3),
        unregistration_message(3),
        registration_message(4),
        registration_message(5, device=TABLET, grant=b""),
        unregistration_message(1, device=TABLET),
        registration_message(2, device=TABLET),
        registration_message(1, device=WATCH),
    )
    assert [(limit.name, limit.message) for limit in limits] == [
        (name, entry(number).hash)
        for name, number in [
            (FIRST_REGISTRATIONS, 1),
            (INSTALLATIONS, 1),
            (REPEATS, 2),
            (REPEATS, 4),
            (REPEATS, 6),
            (REPEATS, 8),
            (FIRST_REGISTRATIONS, 9),
            (INSTALLATIONS, 9),
            (FIRST_REGISTRATIONS, 11),
            (INSTALLATIONS, 11),
        ]
    ]


def test_the_settings_set_the_limits():
    limits = {"first_registrations_per_hour": 5, "installations_per_key_per_hour": 7}
    content = registration_message(1)
    assert limits_of(content, content, **limits) == [*first_limits(total=5, of_user=7), repeat_limit(content, 2)]


@pytest.mark.parametrize("limit", first_limits(), ids=lambda limit: limit.name)
def test_each_limit_of_first_registrations_refuses(limit):
    [outcome] = decide_registrations(registration_message(1), verdicts=hold_back(limit))
    assert kinds(outcome) == [EventKind.RECEIVED, EventKind.OPENED, EventKind.REFUSED, EventKind.ANSWERED]
    assert failures(outcome) == [Failure.REGISTRATION_RATE_LIMIT] * 2
    assert (registration_answers([outcome]), outcome.effect) == ([INTERNAL], None)


def test_a_new_installation_shares_one_verdict():
    contents = registration_message(1), ON_TABLET, V2, registration_message(1), unregistration_message(3)
    outcomes = decide_registrations(*contents, verdicts=hold_back(*first_limits()))
    assert registration_answers(outcomes) == [INTERNAL, SUCCESS, INTERNAL, INTERNAL, INTERNAL]
    assert failures(outcomes[1]) == []
    for outcome in (outcomes[0], *outcomes[2:]):
        assert failures(outcome) == [Failure.REGISTRATION_RATE_LIMIT] * 2
        assert outcome.effect is None


def test_an_older_version_shares_the_verdict():
    """Or a registration whose grant is wrong would be counted in the place of the one behind it."""
    contents = WITH_WRONG_GRANT, registration_message(1)
    assert limits_of(*contents) == [*first_limits(), repeat_limit(registration_message(1), 2)]
    outcomes = decide_registrations(*contents, verdicts=hold_back(*first_limits()))
    assert registration_answers(outcomes) == [INTERNAL] * 2
    assert registration_answers(decide_registrations(*contents)) == [Answer.MALFORMED_MESSAGE, SUCCESS]


def test_an_uncounted_registration_is_not_stored():
    """Only the one before it, which was not stored, made it look as if it need not be counted."""
    most_one = {"installations_per_key": 1}
    outcomes = decide_registrations(
        registration_message(1), ON_TABLET, verdicts=hold_back(*first_limits()), limits=most_one
    )
    counted = limits_of(registration_message(1), ON_TABLET, **most_one)
    assert counted == [*first_limits(), repeat_limit(ON_TABLET, 2)]
    assert registration_answers(outcomes) == [INTERNAL] * 2
    assert [outcome.effect for outcome in outcomes] == [None] * 2
    contents = WITH_WRONG_GRANT, V2
    assert limits_of(*contents, installations=stored_installations(V2)) == [repeat_limit(V2, 2)]
    outcomes = decide_registrations(*contents, installations=stored_installations(V2))
    assert registration_answers(outcomes) == [Answer.MALFORMED_MESSAGE, Answer.SILENCE]


def test_repeats_of_a_first_one_share_its_verdict():
    contents = [registration_message(1)] * 2
    verdicts = hold_back(*first_limits(), repeat_limit(contents[0], 2))
    assert registration_answers(decide_registrations(*contents, verdicts=verdicts)) == [INTERNAL] * 2


def test_repeats_above_the_limit_are_silent():
    [outcome] = decide_registrations(V2, installations=stored_installations(V2), verdicts=hold_back(repeat_limit(V2)))
    assert kinds(outcome) == [EventKind.RECEIVED, EventKind.OPENED, EventKind.REFUSED]
    assert failures(outcome) == [Failure.REPEATED_TOO_OFTEN]
    assert outcome == Outcome(entry=entry(1), events=outcome.events)


def test_a_changed_installation_is_never_held_back():
    contents = registration_message(3), unregistration_message(4), registration_message(1), registration_message(5)
    assert limits_of(*contents, installations=stored_installations(V2)) == [repeat_limit(registration_message(1), 3)]
    verdicts = hold_back(*(limit for number in range(1, 5) for limit in first_limits(number)))
    outcomes = decide_registrations(*contents, installations=stored_installations(V2), verdicts=verdicts)
    assert registration_answers(outcomes) == [SUCCESS, SUCCESS, MISMATCH, SUCCESS]
