"""The checker by itself: evidence of a good run, and evidence of each thing that a server can be found guilty of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from chaos.checker import JUDGED_SECONDS, LOST_LOG, WARM_SECONDS, Case, Kind, expected_row, judge
from chaos.evidence import Answered, DeviceId, Evidence, Happened, Kept, Pushed, Sample, Window
from chaos.plan import SUCCESS, Fate, Notified, Sent
from wakupush.devnet.demo import messages
from wakupush.protocol.keys import PrivateKey

SERVER = PrivateKey.generate().public_key
CLIENT = PrivateKey.generate()
CONTENT = messages.registration(CLIENT, SERVER, version=2)
DEVICE = DeviceId(CLIENT.public_key.key_hash.hex(), CONTENT.installation_id)
PSEUDONYM = "99" * 16
LEASE = 30.0
KEY = "d1" * 32

REGISTRATION = Sent(
    kind="registration",
    id="a1" * 64,
    envelope="b1" * 32,
    client=CLIENT.secret.hex(),
    at=100.0,
    told=(SUCCESS, "VERSION_MISMATCH"),
    content=CONTENT.SerializeToString().hex(),
)
QUERY = Sent(
    kind="query",
    id="a2" * 32,
    envelope="b2" * 32,
    client=CLIENT.secret.hex(),
    at=101.0,
    devices=((CONTENT.installation_id, CONTENT.access_token),),
)
ITEM = Notified(
    delivery_key=KEY,
    key_hash=DEVICE.key_hash,
    installation_id=DEVICE.installation_id,
    told=(SUCCESS,),
    fate=Fate.MUST,
)
REQUEST = Sent(kind="request", id="a3" * 32, envelope="b3" * 32, client=CLIENT.secret.hex(), at=102.0, items=(ITEM,))
ABOUT = (DEVICE.installation_id,)
UNKNOWN = Happened(
    kind="unknown", trace_id=REQUEST.trace_id, at=140.0, failure="lease_lost", attempt=1, installation=PSEUDONYM
)
ADMITTED = Happened(kind="admitted", trace_id=REQUEST.trace_id, at=103.0, installation=PSEUDONYM)

GOOD = Evidence(
    sent=(REGISTRATION, QUERY, REQUEST),
    answers=(
        Answered(id=REGISTRATION.id, told=(SUCCESS,), at=100.5),
        Answered(id=QUERY.id, told=(f"{CONTENT.installation_id} {CONTENT.access_token}",), at=101.5),
        Answered(id=REQUEST.id, told=(SUCCESS,), about=ABOUT, at=103.5),
    ),
    pushes=(Pushed(delivery_key=KEY, outcome="delivered", at=103.2),),
    events=(
        *(Happened(kind="received", trace_id=sent.trace_id, at=sent.at) for sent in (REGISTRATION, QUERY, REQUEST)),
        ADMITTED,
    ),
    pseudonyms={DEVICE: PSEUDONYM},
    registrations={DEVICE: expected_row(REGISTRATION)},
    deliveries={KEY: Kept(state="delivered", failure=None, attempt=1)},
    in_flight={"answers in the outbox": 0},
    lease=LEASE,
)


def kinds(evidence: Evidence) -> list[Kind]:
    return [violation.kind for violation in judge(evidence)]


def answered(*told: str, id_: str = REQUEST.id, about: tuple[str, ...] = ABOUT) -> Answered:
    return Answered(id=id_, told=told, about=about, at=104.0)


def with_item(evidence: Evidence = GOOD, **fields: object) -> Evidence:
    """Return evidence about another item."""
    request = replace(REQUEST, items=(replace(ITEM, **fields),))
    return replace(evidence, sent=(REGISTRATION, QUERY, request))


def again(first: float, second: float, *unknown: Happened) -> Evidence:
    """Return evidence of a notification that was delivered at two times."""
    pushes = tuple(Pushed(delivery_key=KEY, outcome="delivered", at=at) for at in (first, second))
    return replace(GOOD, pushes=pushes, events=(*GOOD.events, *unknown))


def samples(*megabytes: int, step: float = JUDGED_SECONDS) -> tuple[Sample, ...]:
    return tuple(
        Sample(name="beat", pid=1, at=step * number, age=WARM_SECONDS + step * number, rss=each * 2**20)
        for number, each in enumerate(megabytes)
    )


def test_a_good_run_breaks_no_promise() -> None:
    assert judge(GOOD) == []


def without_event(kind: str, trace_id: str) -> Evidence:
    kept = tuple(event for event in GOOD.events if (event.kind, event.trace_id) != (kind, trace_id))
    return replace(GOOD, events=kept)


def with_answers(*answers: Answered) -> Evidence:
    ids = {answer.id for answer in answers}
    return replace(GOOD, answers=(*(answer for answer in GOOD.answers if answer.id not in ids), *answers))


BAD: dict[str, tuple[Kind, Callable[[], Evidence]]] = {
    "a query that no worker ever saw": (Kind.LOST, lambda: without_event("received", QUERY.trace_id)),
    "a message that was handled twice": (
        Kind.HANDLED_TWICE,
        lambda: replace(GOOD, events=(*GOOD.events, GOOD.events[0])),
    ),
    "a message in quarantine": (
        Kind.QUARANTINED,
        lambda: replace(without_event("received", QUERY.trace_id), quarantined={QUERY.envelope: "process died"}),
    ),
    "no answer to a request": (Kind.UNANSWERED, lambda: replace(GOOD, answers=GOOD.answers[:2])),
    "an error for a device that can be reached": (
        Kind.ANSWERED_WRONGLY,
        lambda: replace(
            with_answers(answered("INTERNAL_ERROR")),
            pushes=(),
            deliveries={},
            sent=(*GOOD.sent[:2], replace(REQUEST, items=(replace(ITEM, fate=Fate.MAY),))),
        ),
    ),
    "an answer to nobody": (
        Kind.ANSWERED_WRONGLY,
        lambda: replace(GOOD, answers=(*GOOD.answers, answered(SUCCESS, id_="00" * 32))),
    ),
    "a report about another device": (Kind.ANSWERED_WRONGLY, lambda: with_answers(answered(SUCCESS, about=("x",)))),
    "a query that is told of nobody": (Kind.ANSWERED_WRONGLY, lambda: with_answers(answered(id_=QUERY.id))),
    "the last registration refused": (
        Kind.ANSWERED_WRONGLY,
        lambda: with_answers(answered("VERSION_MISMATCH", id_=REGISTRATION.id, about=())),
    ),
    "two answers that contradict each other": (
        Kind.ANSWERED_INCONSISTENTLY,
        lambda: with_item(
            with_answers(answered(SUCCESS), answered("NOT_REGISTERED")), told=(SUCCESS, "NOT_REGISTERED")
        ),
    ),
    "an error for a push that was delivered": (
        Kind.UNTRUE,
        lambda: with_item(with_answers(answered("NOT_REGISTERED")), told=("NOT_REGISTERED",), fate=Fate.MAY),
    ),
    "success for a delivery that was forgotten": (
        Kind.UNTRUE,
        lambda: with_item(replace(GOOD, pushes=(), deliveries={}), fate=Fate.KEPT),
    ),
    "success for a delivery that was given up": (
        Kind.UNTRUE,
        lambda: with_item(
            replace(GOOD, pushes=(), deliveries={KEY: Kept(state="failed", failure="token_rejected", attempt=1)}),
            fate=Fate.KEPT,
        ),
    ),
    "a push that never reached the platform": (Kind.NOT_PUSHED, lambda: replace(GOOD, pushes=())),
    "a push that was only tried": (
        Kind.NOT_PUSHED,
        lambda: replace(GOOD, pushes=(Pushed(delivery_key=KEY, outcome="ServiceUnavailable", at=103.2),)),
    ),
    "a push to somebody who blocks the chat": (Kind.PUSHED_WRONGLY, lambda: with_item(fate=Fate.NEVER)),
    "a push that nobody asked for": (
        Kind.PUSHED_WRONGLY,
        lambda: replace(GOOD, pushes=(*GOOD.pushes, Pushed(delivery_key="ee", outcome="delivered", at=1.0))),
    ),
    "a doubled push": (Kind.PUSHED_TWICE, lambda: again(103.2, 110.0)),
    "a doubled push after an unknown outcome of before": (
        Kind.PUSHED_TWICE,
        lambda: again(150.0, 160.0, UNKNOWN),
    ),
    "a doubled push after an unknown outcome of another device": (
        Kind.PUSHED_TWICE,
        lambda: again(103.2, 141.0, replace(UNKNOWN, installation="77" * 16)),
    ),
    "a lease that was over too early": (
        Kind.LEASE_CUT_SHORT,
        lambda: again(103.2, 106.0, replace(UNKNOWN, at=105.0)),
    ),
    "a registration that is not stored": (Kind.REGISTRATION_WRONG, lambda: replace(GOOD, registrations={})),
    "an old version": (
        Kind.REGISTRATION_WRONG,
        lambda: replace(GOOD, registrations={DEVICE: replace(expected_row(REGISTRATION), version=1)}),
    ),
    "another token": (
        Kind.REGISTRATION_WRONG,
        lambda: replace(
            GOOD,
            registrations={
                DEVICE: replace(
                    expected_row(REGISTRATION), content={**expected_row(REGISTRATION).content, "device_token": "x"}
                )
            },
        ),
    ),
    "a registration of somebody who was refused": (
        Kind.REGISTRATION_WRONG,
        lambda: replace(GOOD, registrations={**GOOD.registrations, DeviceId("00", "x"): expected_row(REGISTRATION)}),
    ),
    "an answer in the outbox": (
        Kind.LEFT_IN_FLIGHT,
        lambda: replace(GOOD, in_flight={"answers in the outbox": 1}),
    ),
    "memory that grows": (Kind.MEMORY_GREW, lambda: replace(GOOD, memory=samples(100, 120, 140, 160))),
}


@pytest.mark.parametrize("name", BAD)
def test_each_broken_promise_is_found_and_nothing_else(name: str) -> None:
    kind, make = BAD[name]
    assert kinds(make()) == [kind]


def test_every_kind_is_found_by_a_test() -> None:
    assert {kind for kind, _ in BAD.values()} == set(Kind)


def test_what_remains_of_somebody_who_left_is_found() -> None:
    content = messages.registration(CLIENT, SERVER, installation_id=CONTENT.installation_id, version=3)
    content.unregister = True
    left = replace(REGISTRATION, id="a4" * 64, envelope="b4" * 32, content=content.SerializeToString().hex())
    sent = (*GOOD.sent, left)
    events = (*GOOD.events, Happened(kind="received", trace_id=left.trace_id, at=105.0))
    gone = replace(
        GOOD,
        sent=sent,
        events=events,
        answers=(*GOOD.answers, answered(SUCCESS, id_=left.id, about=())),
        registrations={DEVICE: expected_row(left)},
    )
    assert judge(gone) == []
    row = replace(expected_row(left), content={"device_token": "x"})
    assert kinds(replace(gone, registrations={DEVICE: row})) == [Kind.REGISTRATION_WRONG]
    assert kinds(replace(gone, registrations=GOOD.registrations)) == [Kind.REGISTRATION_WRONG]


def test_unknown_outcome_explains_a_doubled_push() -> None:
    evidence = again(103.2, 141.0, UNKNOWN)
    assert judge(evidence) == []
    assert Case(evidence).doubled([REQUEST], ITEM) == ["lease_lost"]
    third = Pushed(delivery_key=KEY, outcome="delivered", at=150.0)
    assert kinds(replace(evidence, pushes=(*evidence.pushes, third))) == [Kind.PUSHED_TWICE]


def test_a_lease_begins_anew_with_each_admission() -> None:
    later = replace(ADMITTED, at=200.0)
    short = replace(GOOD, events=(*GOOD.events, later, replace(UNKNOWN, at=210.0)))
    assert kinds(short) == [Kind.LEASE_CUT_SHORT]
    assert judge(replace(GOOD, events=(*GOOD.events, later, replace(UNKNOWN, at=200.0 + LEASE)))) == []


def test_unreported_gorush_failure_is_excused() -> None:
    tried = replace(GOOD, pushes=(Pushed(delivery_key=KEY, outcome="InternalServerError", at=103.2),))
    window = partial(Window, name=LOST_LOG)
    assert judge(replace(tried, faults=(window(began=103.0, ended=104.0),))) == []
    assert kinds(replace(tried, faults=(window(began=110.0, ended=120.0),))) == [Kind.NOT_PUSHED]
    other = Window(name="gorush is slow", began=103.0, ended=104.0)
    assert kinds(replace(tried, faults=(other,))) == [Kind.NOT_PUSHED]


def test_another_envelope_may_be_answered_otherwise() -> None:
    other = replace(REQUEST, envelope="b5" * 32, items=(replace(ITEM, told=(SUCCESS, "NOT_REGISTERED")),))
    both = (REGISTRATION, QUERY, replace(other, envelope=REQUEST.envelope), other)
    received = Happened(kind="received", trace_id=other.trace_id, at=105.0)
    evidence = replace(
        with_answers(answered("NOT_REGISTERED"), answered(SUCCESS)), sent=both, events=(*GOOD.events, received)
    )
    assert judge(evidence) == []


def test_repeated_envelope_is_handled_once() -> None:
    assert judge(replace(GOOD, sent=(*GOOD.sent, QUERY))) == []


def test_memory_is_judged_of_long_runs_only() -> None:
    assert judge(replace(GOOD, memory=samples(100, 120, 140, 160, step=1.0))) == []
    assert judge(replace(GOOD, memory=samples(100, 101, 100, 102))) == []
    cold = tuple(replace(sample, age=1.0) for sample in samples(100, 120, 140, 160))
    assert judge(replace(GOOD, memory=cold)) == []


def test_a_query_may_lack_devices_whose_token_died() -> None:
    mortal = replace(QUERY, mortal=(CONTENT.installation_id,))
    silent = replace(GOOD, answers=(GOOD.answers[0], GOOD.answers[2]))
    assert kinds(silent) == [Kind.UNANSWERED]
    assert judge(replace(silent, sent=(REGISTRATION, mortal, REQUEST))) == []


def test_unknown_outcomes_are_ordered_by_time() -> None:
    late = replace(UNKNOWN, at=141.5, failure="gorush_failed", attempt=2)
    evidence = again(103.2, 141.0, late, UNKNOWN)
    third = Pushed(delivery_key=KEY, outcome="delivered", at=150.0)
    assert judge(replace(evidence, pushes=(*evidence.pushes, third))) == []


def test_repeat_with_doubtful_token_may_be_a_mismatch() -> None:
    told = with_answers(answered("VERSION_MISMATCH", id_=REGISTRATION.id, about=()))
    mortal = replace(REGISTRATION, mortal=(CONTENT.installation_id,))
    assert kinds(told) == [Kind.ANSWERED_WRONGLY]
    assert kinds(replace(told, sent=tuple(mortal if each == REGISTRATION else each for each in told.sent))) == []
