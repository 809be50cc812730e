"""Deciding on registrations: what is counted, and what is refused above a limit."""

import pytest

from support.deciding import (
    ALICE,
    ALLOW,
    BOB,
    DENY,
    GONE,
    INTERNAL,
    MISMATCH,
    PHONE,
    REGISTERED,
    SUCCESS,
    TABLET,
    V2,
    WATCH,
    after,
    answers,
    decide_one,
    entry,
    facts,
    firsts,
    messages,
    refused,
    registering,
    repeats,
    told,
    unregistering,
)
from wakupush.model.failures import Failure
from wakupush.model.limits import FIRST_REGISTRATIONS, INSTALLATIONS, REPEATS, Verdicts
from wakupush.model.queues import REGISTRATION
from wakupush.server.engine.outcome import Outcome
from wakupush.server.registration.decide import decide

ON_TABLET = registering(1, device=TABLET)


@pytest.mark.parametrize(
    ("known", "asked", "expected"),
    [
        ([], [registering(1), ON_TABLET], [SUCCESS, INTERNAL]),
        ([], [registering(1), registering(1, device=TABLET, user=BOB)], [SUCCESS] * 2),
        ([ON_TABLET], [registering(1)], [INTERNAL]),
        ([ON_TABLET], [unregistering(2, device=TABLET), registering(1)], [SUCCESS] * 2),
        ([ON_TABLET], [registering(1), unregistering(2, device=TABLET), registering(1)], [INTERNAL, SUCCESS, SUCCESS]),
        ([ON_TABLET], [registering(2, device=TABLET), registering(1)], [SUCCESS, INTERNAL]),
        ([ON_TABLET], [unregistering(1), registering(2)], [SUCCESS, INTERNAL]),
        ([ON_TABLET], [ON_TABLET], [SUCCESS]),
        ([GONE, ON_TABLET], [registering(3)], [INTERNAL]),
        ([GONE], [ON_TABLET, registering(3)], [SUCCESS, INTERNAL]),
        ([V2], [unregistering(3), unregistering(4), ON_TABLET, registering(5)], [SUCCESS, SUCCESS, SUCCESS, INTERNAL]),
        ([V2], [unregistering(3), unregistering(3), registering(4), ON_TABLET], [SUCCESS, SUCCESS, SUCCESS, INTERNAL]),
    ],
)
def test_a_key_has_so_many_installations(known, asked, expected):
    outcomes = decide(messages(*asked), after(*known, limits={"installations_per_key": 1}), ALLOW)
    assert answers(outcomes) == expected
    for outcome, answer in zip(outcomes, expected, strict=True):
        if answer is INTERNAL:
            assert told(outcome) == refused(Failure.INSTALLATION_LIMIT)
            assert (outcome.change, outcome.limits) == (None, ())


def test_installations_that_are_not_asked_about_count_too():
    known = facts(REGISTRATION, counts={ALICE.public_key.key_hash: 2}, limits={"installations_per_key": 3})
    asked = [registering(1, device=device) for device in (PHONE, TABLET)]
    assert answers(decide(messages(*asked), known, ALLOW)) == [SUCCESS, INTERNAL]


def counted(outcomes):
    return [[limit.name for limit in outcome.limits] for outcome in outcomes]


def test_what_registrations_are_counted_for():
    asked = [
        registering(1),
        registering(1),
        registering(2),
        registering(1),
        unregistering(3),
        unregistering(3),
        registering(4),
        registering(0, device=TABLET),
        unregistering(1, device=TABLET),
        registering(2, device=TABLET),
        registering(1, device=WATCH),
    ]
    assert counted(decide(messages(*asked), after(), ALLOW)) == [
        [FIRST_REGISTRATIONS, INSTALLATIONS],
        [REPEATS],
        [],
        [],
        [],
        [REPEATS],
        [],
        [],
        [FIRST_REGISTRATIONS, INSTALLATIONS],
        [],
        [FIRST_REGISTRATIONS, INSTALLATIONS],
    ]


def test_the_limits_are_those_of_the_settings():
    limits = {"first_registrations_per_hour": 5, "installations_per_key_per_hour": 7}
    outcomes = decide(messages(registering(1), registering(1)), after(limits=limits), ALLOW)
    assert outcomes[0].limits == firsts(entry(1), in_all=5, of_key=7)
    assert outcomes[1].limits == (repeats(registering(1), entry(2)),)


@pytest.mark.parametrize("name", [FIRST_REGISTRATIONS, INSTALLATIONS])
def test_each_of_the_limits_of_first_registrations_refuses(name):
    [allowed] = decide(messages(registering(1)), after(), ALLOW)
    verdicts = Verdicts({limit: limit.name != name for limit in allowed.limits})
    outcome = decide_one(registering(1), after(), verdicts)
    assert told(outcome) == refused(Failure.REGISTRATION_RATE_LIMIT)
    assert outcome.limits == allowed.limits


def test_one_first_registration_too_many_stays_a_first_one():
    asked = messages(registering(1), registering(1, device=TABLET), registering(2), registering(1))
    allowed = decide(asked, after(), ALLOW)
    verdicts = {limit: limit.message != entry(1).hash for outcome in allowed for limit in outcome.limits}
    outcomes = decide(asked, after(), Verdicts(verdicts, otherwise=False))
    assert answers(outcomes) == [INTERNAL, SUCCESS, INTERNAL, INTERNAL]
    assert [told(outcome) for outcome in outcomes] == [
        refused(Failure.REGISTRATION_RATE_LIMIT),
        REGISTERED,
        refused(Failure.REGISTRATION_RATE_LIMIT),
        refused(Failure.REGISTRATION_RATE_LIMIT),
    ]
    assert counted(outcomes) == [[FIRST_REGISTRATIONS, INSTALLATIONS]] * 4
    assert [outcome.change is None for outcome in outcomes] == [True, False, True, True]
    assert [outcome.listening is None for outcome in outcomes] == [True, False, True, True]


def test_a_repeat_too_many_is_met_by_silence():
    outcome = decide_one(V2, after(V2), DENY)
    assert told(outcome) == refused(Failure.REPEATED_TOO_OFTEN)
    limits = (repeats(V2, entry(1)),)
    assert outcome == Outcome(entry=entry(1), events=outcome.events, limits=limits)


def test_what_is_not_counted_no_limit_refuses():
    asked = [registering(3), unregistering(4), registering(1), registering(5)]
    assert answers(decide(messages(*asked), after(V2), DENY)) == [SUCCESS, SUCCESS, MISMATCH, SUCCESS]
