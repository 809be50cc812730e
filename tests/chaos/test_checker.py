"""The checker by itself: evidence of a good run, and evidence of each thing that a server can be found guilty of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from chaos.case import LOST_LOG, Case
from chaos.checker import JUDGED_SECONDS, WARM_SECONDS, Kind, expected_row, judge
from chaos.collect import busy
from chaos.evidence import Answered, DeviceId, Evidence, Happened, Kept, Pushed, Sample, Window
from chaos.plan import SUCCESS, Fate, Notified, Sent
from wakupush.devnet import messages
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
    allowed_results=(SUCCESS, "VERSION_MISMATCH"),
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
    allowed_results=(SUCCESS,),
    fate=Fate.MUST,
)
REQUEST = Sent(kind="request", id="a3" * 32, envelope="b3" * 32, client=CLIENT.secret.hex(), at=102.0, items=(ITEM,))
ABOUT = (DEVICE.installation_id,)
#: The worker that posts, and another one.
POSTER, OTHER = 11, 12
ADMITTED = Happened(kind="admitted", trace_id=REQUEST.trace_id, at=103.0, installation=PSEUDONYM, pid=POSTER)
DELIVERED = replace(ADMITTED, kind="delivered", at=103.3, attempt=1)
UNKNOWN = replace(ADMITTED, kind="unknown", at=140.0, failure="lease_lost", attempt=1, pid=OTHER)
FAILED = replace(DELIVERED, kind="failed", failure="token_unregistered")
KILLED = Window(
    name="a child of dispatch is killed", began=104.0, ended=105.0, part="dispatch", pids=frozenset({POSTER})
)

GOOD = Evidence(
    sent=(REGISTRATION, QUERY, REQUEST),
    answers=(
        Answered(id=REGISTRATION.id, results=(SUCCESS,), at=100.5),
        Answered(id=QUERY.id, results=(f"{CONTENT.installation_id} {CONTENT.access_token}",), at=101.5),
        Answered(id=REQUEST.id, results=(SUCCESS,), about=ABOUT, at=103.5),
    ),
    pushes=(Pushed(delivery_key=KEY, outcome="delivered", at=103.2),),
    events=(
        *(
            Happened(kind="received", trace_id=message.trace_id, at=message.at)
            for message in (REGISTRATION, QUERY, REQUEST)
        ),
        ADMITTED,
        DELIVERED,
    ),
    ledger=frozenset(message.envelope for message in (REGISTRATION, QUERY, REQUEST)),
    pseudonyms={DEVICE: PSEUDONYM},
    registrations={DEVICE: expected_row(REGISTRATION)},
    deliveries={KEY: Kept(state="delivered", failure=None, attempt=1)},
    in_flight={"answers in the outbox": 0},
    lease=LEASE,
)


def kinds(evidence: Evidence) -> list[Kind]:
    return [violation.kind for violation in judge(evidence)]


def answered(*results: str, id_: str = REQUEST.id, about: tuple[str, ...] = ABOUT, at: float = 104.0) -> Answered:
    return Answered(id=id_, results=results, about=about, at=at)


def with_item(evidence: Evidence = GOOD, **fields: object) -> Evidence:
    """Return evidence about another item."""
    request = replace(REQUEST, items=(replace(ITEM, **fields),))
    return replace(evidence, sent=(REGISTRATION, QUERY, request))


def with_history(*events: Happened, evidence: Evidence = GOOD) -> Evidence:
    """Return evidence with other events of the delivery."""
    return replace(evidence, events=(*(event for event in evidence.events if not event.installation), *events))


def again(first: float, second: float, *unknown: Happened, faults: tuple[Window, ...] = (KILLED,)) -> Evidence:
    """Return evidence of a notification that was delivered at two times."""
    pushes = tuple(Pushed(delivery_key=KEY, outcome="delivered", at=at) for at in (first, second))
    delivered = replace(DELIVERED, at=second + 0.1, pid=OTHER)
    return with_history(ADMITTED, *unknown, delivered, evidence=replace(GOOD, pushes=pushes, faults=faults))


def failed(*events: Happened) -> Evidence:
    """Return evidence of a delivery whose token was dead."""
    evidence = with_item(allowed_results=(SUCCESS, "NOT_REGISTERED"), fate=Fate.NEVER)
    row = {KEY: Kept(state="failed", failure="token_unregistered", attempt=1)}
    return with_history(ADMITTED, *events, evidence=replace(evidence, pushes=(), deliveries=row))


def outlived() -> Evidence:
    """Return evidence of a notification that expired while gorush was away."""
    gorush = Window(name="gorush is killed", began=102.0, ended=150.0, part="gorush")
    return with_history(
        ADMITTED,
        replace(FAILED, kind="expired", at=135.0, failure="delivery_expired"),
        evidence=replace(
            GOOD,
            pushes=(),
            deliveries={KEY: Kept(state="expired", failure="delivery_expired", attempt=0)},
            faults=(gorush,),
            time_to_live=30.0,
        ),
    )


def two_envelopes(*answers: Answered, events: tuple[Happened, ...] = (ADMITTED, FAILED)) -> Evidence:
    """Return evidence of a request for a device whose token was dead, which came in two envelopes."""
    evidence = failed()
    [*others, request] = evidence.sent
    other = replace(request, envelope="b5" * 32)
    received = Happened(kind="received", trace_id=other.trace_id, at=105.0)
    return with_history(
        *events,
        evidence=replace(
            evidence,
            sent=(*others, request, other),
            events=(*GOOD.events, received),
            answers=(*GOOD.answers[:2], *answers),
            ledger=GOOD.ledger | {other.envelope},
        ),
    )


def samples(*megabytes: int, step: float = JUDGED_SECONDS) -> tuple[Sample, ...]:
    return tuple(
        Sample(name="beat", pid=1, at=step * number, age=WARM_SECONDS + step * number, rss=each * 2**20)
        for number, each in enumerate(megabytes)
    )


def test_a_good_run_breaks_no_promise() -> None:
    assert judge(GOOD) == []


def without_event(kind: str, trace_id: str) -> Evidence:
    events = tuple(event for event in GOOD.events if (event.kind, event.trace_id) != (kind, trace_id))
    return replace(GOOD, events=events)


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
        lambda: with_history(
            evidence=replace(
                with_answers(answered("INTERNAL_ERROR")),
                pushes=(),
                deliveries={},
                sent=(*GOOD.sent[:2], replace(REQUEST, items=(replace(ITEM, fate=Fate.MAY),))),
                events=(*GOOD.events, replace(ADMITTED, kind="refused", installation=None)),
            )
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
            with_answers(answered(SUCCESS), answered("NOT_REGISTERED")), allowed_results=(SUCCESS, "NOT_REGISTERED")
        ),
    ),
    "an error for a push that was delivered": (
        Kind.UNTRUE,
        lambda: with_item(with_answers(answered("NOT_REGISTERED")), allowed_results=("NOT_REGISTERED",), fate=Fate.MAY),
    ),
    "success for a delivery that was given up": (
        Kind.UNTRUE,
        lambda: with_history(
            ADMITTED,
            FAILED,
            evidence=with_item(
                replace(GOOD, pushes=(), deliveries={KEY: Kept(state="failed", failure="token_rejected", attempt=1)}),
                fate=Fate.KEPT,
            ),
        ),
    ),
    "a success that left after the token was found dead": (
        Kind.FALSE_SUCCESS,
        lambda: replace(failed(FAILED), answers=(*GOOD.answers[:2], answered(SUCCESS, at=107.0))),
    ),
    "a success that left after the notification had expired": (
        Kind.FALSE_SUCCESS,
        lambda: replace(
            failed(replace(FAILED, kind="expired", failure="delivery_expired")),
            deliveries={KEY: Kept(state="expired", failure="delivery_expired", attempt=1)},
            answers=(*GOOD.answers[:2], answered(SUCCESS, at=107.0)),
        ),
    ),
    "a success after an error, and nothing happened in between": (
        Kind.ANSWERED_INCONSISTENTLY,
        lambda: two_envelopes(
            answered("NOT_REGISTERED", at=104.0),
            answered(SUCCESS, at=104.05),
            events=(replace(ADMITTED, at=100.0), replace(FAILED, at=102.9)),
        ),
    ),
    "an error after a success, although nothing failed": (
        Kind.ANSWERED_INCONSISTENTLY,
        lambda: replace(
            two_envelopes(answered(SUCCESS), answered("NOT_REGISTERED", at=109.0), events=(ADMITTED,)),
            deliveries={KEY: Kept(state="pending", failure=None, attempt=0)},
        ),
    ),
    "one answer to two envelopes": (Kind.UNANSWERED, lambda: two_envelopes(answered("NOT_REGISTERED"))),
    "a message in the ledger that left no event": (
        Kind.LOST,
        lambda: replace(without_event("received", QUERY.trace_id), answers=GOOD.answers[::2]),
    ),
    "a message that has events and is not in the ledger": (
        Kind.LOST,
        lambda: replace(GOOD, ledger=GOOD.ledger - {QUERY.envelope}),
    ),
    "a delivery that is gone": (Kind.UNACCOUNTED, lambda: replace(GOOD, deliveries={})),
    "a delivery without its last event": (Kind.UNACCOUNTED, lambda: with_history(ADMITTED)),
    "a delivery that was never admitted": (Kind.UNACCOUNTED, with_history),
    "an item that nobody decided on": (
        Kind.UNACCOUNTED,
        lambda: with_history(evidence=replace(with_item(fate=Fate.MAY), deliveries={}, pushes=())),
    ),
    "an item that was refused and admitted": (
        Kind.UNACCOUNTED,
        lambda: replace(GOOD, events=(*GOOD.events, replace(ADMITTED, kind="refused", installation=None))),
    ),
    "a message that waited for long": (
        Kind.STARVED,
        lambda: replace(GOOD, message_patience=1.0, sent=(replace(REGISTRATION, at=98.0), *GOOD.sent[1:])),
    ),
    "a delivery that waited for long": (
        Kind.STARVED,
        lambda: with_history(
            ADMITTED,
            replace(DELIVERED, at=200.0),
            evidence=replace(GOOD, delivery_patience=30.0, faults=(replace(KILLED, ended=134.0),)),
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
    "a push after the notification had expired": (
        Kind.PUSHED_WRONGLY,
        lambda: replace(outlived(), pushes=(Pushed(delivery_key=KEY, outcome="refused", at=140.0),)),
    ),
    "a notification that expired although gorush was there": (
        Kind.NOT_PUSHED,
        lambda: replace(outlived(), faults=()),
    ),
    "a notification that expired before its time": (
        Kind.NOT_PUSHED,
        lambda: replace(outlived(), time_to_live=60.0),
    ),
    "a doubled push": (Kind.PUSHED_TWICE, lambda: again(103.2, 110.0)),
    "a doubled push after an unknown outcome of before": (
        Kind.PUSHED_TWICE,
        lambda: again(150.0, 160.0, UNKNOWN),
    ),
    "a doubled push after a lease that nothing made its holder lose": (
        Kind.PUSHED_TWICE,
        lambda: again(103.2, 141.0, UNKNOWN, faults=()),
    ),
    "a doubled push after another process was killed": (
        Kind.PUSHED_TWICE,
        lambda: again(103.2, 141.0, UNKNOWN, faults=(replace(KILLED, pids=frozenset({OTHER})),)),
    ),
    "a doubled push after its process was killed before": (
        Kind.PUSHED_TWICE,
        lambda: again(103.2, 141.0, UNKNOWN, faults=(replace(KILLED, began=90.0, ended=91.0),)),
    ),
    "a doubled push after a time-out of a gorush that was well": (
        Kind.PUSHED_TWICE,
        lambda: again(103.2, 112.0, replace(UNKNOWN, at=111.0, failure="gorush_timed_out", pid=POSTER), faults=()),
    ),
    "a doubled push after an unknown outcome of another device": (
        Kind.PUSHED_TWICE,
        lambda: again(103.2, 141.0, replace(UNKNOWN, installation="77" * 16)),
    ),
    "a lease that was over too early": (
        Kind.LEASE_CUT_SHORT,
        lambda: again(103.2, 106.0, replace(UNKNOWN, at=105.0)),
    ),
    "a lease of a later attempt that was over too early": (
        Kind.LEASE_CUT_SHORT,
        lambda: with_history(
            ADMITTED,
            replace(UNKNOWN, failure="gorush_failed", at=110.0),
            replace(UNKNOWN, at=115.0, attempt=2),
            replace(DELIVERED, at=116.0),
        ),
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
    "a count of attempts of a message that was handled": (
        Kind.LEFT_OVER,
        lambda: replace(GOOD, leftovers={"message_attempts": 1}),
    ),
    "a process that ended by itself": (Kind.ENDED, lambda: replace(GOOD, died={"worker query": 1})),
    "memory that grows": (Kind.MEMORY_GREW, lambda: replace(GOOD, memory=samples(100, 120, 140, 160))),
}


@pytest.mark.parametrize("name", BAD)
def test_each_broken_promise_is_found_and_nothing_else(name: str) -> None:
    kind, make = BAD[name]
    assert set(kinds(make())) == {kind}


def test_every_kind_is_found_by_a_test() -> None:
    assert {kind for kind, _ in BAD.values()} == set(Kind)


def test_what_remains_of_somebody_who_left_is_found() -> None:
    content = messages.registration(CLIENT, SERVER, installation_id=CONTENT.installation_id, version=3)
    content.unregister = True
    unregistration = replace(REGISTRATION, id="a4" * 64, envelope="b4" * 32, content=content.SerializeToString().hex())
    all_messages = (*GOOD.sent, unregistration)
    events = (*GOOD.events, Happened(kind="received", trace_id=unregistration.trace_id, at=105.0))
    evidence = replace(
        GOOD,
        sent=all_messages,
        events=events,
        answers=(*GOOD.answers, answered(SUCCESS, id_=unregistration.id, about=())),
        registrations={DEVICE: expected_row(unregistration)},
        ledger=GOOD.ledger | {unregistration.envelope},
    )
    assert judge(evidence) == []
    row = replace(expected_row(unregistration), content={"device_token": "x"})
    assert kinds(replace(evidence, registrations={DEVICE: row})) == [Kind.REGISTRATION_WRONG]
    assert kinds(replace(evidence, registrations=GOOD.registrations)) == [Kind.REGISTRATION_WRONG]


def test_unknown_outcome_explains_a_doubled_push() -> None:
    evidence = again(103.2, 141.0, UNKNOWN)
    assert judge(evidence) == []
    assert Case(evidence).doubled([REQUEST], ITEM) == ["lease_lost"]
    third = Pushed(delivery_key=KEY, outcome="delivered", at=150.0)
    assert kinds(replace(evidence, pushes=(*evidence.pushes, third))) == [Kind.PUSHED_TWICE]


def test_a_lease_begins_anew_with_each_admission() -> None:
    later = replace(ADMITTED, at=200.0)
    short = with_history(ADMITTED, later, replace(UNKNOWN, at=210.0), replace(DELIVERED, at=210.1))
    assert kinds(short) == [Kind.LEASE_CUT_SHORT]
    lost = replace(UNKNOWN, at=200.0 + LEASE)
    assert judge(with_history(ADMITTED, later, lost, replace(DELIVERED, at=200.1 + LEASE))) == []


def test_unreported_gorush_failure_is_excused() -> None:
    tried = replace(GOOD, pushes=(Pushed(delivery_key=KEY, outcome="InternalServerError", at=103.2),))
    window = partial(Window, name=LOST_LOG)
    assert judge(replace(tried, faults=(window(began=103.0, ended=104.0),))) == []
    assert kinds(replace(tried, faults=(window(began=110.0, ended=120.0),))) == [Kind.NOT_PUSHED]
    other = Window(name="gorush is slow", began=103.0, ended=104.0)
    assert kinds(replace(tried, faults=(other,))) == [Kind.NOT_PUSHED]


def test_another_envelope_may_be_answered_otherwise() -> None:
    assert judge(two_envelopes(answered(SUCCESS, at=103.2), answered("NOT_REGISTERED", at=105.5))) == []
    again_admitted = (ADMITTED, FAILED, replace(ADMITTED, at=107.0), replace(FAILED, at=112.0))
    answers = answered("NOT_REGISTERED", at=105.5), answered(SUCCESS, at=107.4)
    assert judge(two_envelopes(*answers, events=again_admitted)) == []
    # The node was slow: the second envelope failed as well while both answers were on their way.
    slow = (ADMITTED, FAILED, replace(ADMITTED, at=104.0), replace(FAILED, at=104.6))
    crossing = answered("NOT_REGISTERED", at=104.8), answered(SUCCESS, at=104.9)
    assert judge(two_envelopes(*crossing, events=slow)) == []
    assert kinds(two_envelopes(*crossing, events=slow[:2])) == [Kind.ANSWERED_INCONSISTENTLY]


def test_answers_that_leave_at_once_may_differ() -> None:
    """A worker looks again a slot before an answer leaves: what failed within it, the other answer may not know."""
    just_before = replace(FAILED, at=103.95)
    answers = answered("NOT_REGISTERED", at=104.0), answered(SUCCESS, at=104.05)
    crossing = two_envelopes(*answers, events=(replace(ADMITTED, at=100.0), just_before))
    assert Kind.ANSWERED_INCONSISTENTLY not in {violation.kind for violation in judge(crossing)}


def test_success_before_a_failure_is_true() -> None:
    assert judge(replace(failed(FAILED), answers=(*GOOD.answers[:2], answered(SUCCESS, at=103.1)))) == []
    # It was being handed to the node.
    assert judge(replace(failed(FAILED), answers=(*GOOD.answers[:2], answered(SUCCESS, at=105.0)))) == []
    later = failed(FAILED, replace(ADMITTED, at=104.0), replace(FAILED, at=109.0))
    assert judge(replace(later, answers=(*GOOD.answers[:2], answered(SUCCESS, at=106.0)))) == []


def test_deliveries_go_with_their_registration() -> None:
    unregistration = Happened(kind="unregistered", trace_id="ee" * 8, at=107.0, installation=PSEUDONYM)
    assert judge(replace(GOOD, deliveries={}, events=(*GOOD.events, unregistration))) == []
    assert kinds(replace(GOOD, deliveries={}, events=(*GOOD.events, replace(unregistration, at=90.0)))) == [
        Kind.UNACCOUNTED
    ]


def test_a_fault_of_gorush_or_postgres_explains_a_push() -> None:
    timed_out = replace(UNKNOWN, at=111.0, failure="gorush_timed_out", pid=POSTER)
    gorush = Window(name="gorush hangs", began=102.0, ended=104.0, part="gorush")
    postgres = replace(gorush, name="Postgres is slow", part="postgres")
    assert judge(again(103.2, 112.0, timed_out, faults=(gorush,))) == []
    assert judge(again(103.2, 141.0, UNKNOWN, faults=(postgres,))) == []
    assert kinds(again(103.2, 112.0, timed_out, faults=(postgres,))) == [Kind.PUSHED_TWICE]
    assert kinds(again(103.2, 141.0, UNKNOWN, faults=(gorush,))) == [Kind.PUSHED_TWICE]


def test_a_notification_may_outlive_an_outage_of_gorush() -> None:
    assert judge(outlived()) == []


def test_what_postgres_lost_may_happen_again() -> None:
    lost = Window(name="Postgres is restored", began=103.1, ended=120.0, part="postgres", loses=True)
    twice = again(103.2, 150.0, faults=(lost,))
    answers = (*GOOD.answers, answered(SUCCESS, at=150.2))
    assert judge(replace(twice, answers=answers)) == []
    assert kinds(replace(twice, faults=(replace(lost, loses=False),))) == [Kind.PUSHED_TWICE]
    assert kinds(replace(twice, faults=(replace(lost, began=110.0),))) == [Kind.PUSHED_TWICE]
    without_row = replace(twice, registrations={})
    assert kinds(without_row) == [Kind.REGISTRATION_WRONG]


def test_parts_of_a_message_are_answered_once() -> None:
    parts = tuple(replace(REQUEST, envelope=envelope * 32, parts=2) for envelope in ("b6", "b7"))
    received = [Happened(kind="received", trace_id=part.trace_id, at=102.0) for part in parts]
    whole = [replace(event, trace_id=parts[1].trace_id) for event in (ADMITTED, DELIVERED)]
    evidence = replace(
        GOOD,
        sent=(REGISTRATION, QUERY, *parts),
        events=(*GOOD.events[:2], *received, *whole),
        ledger=GOOD.ledger | {part.envelope for part in parts},
    )
    assert judge(evidence) == []
    assert kinds(replace(evidence, answers=GOOD.answers[:2])) == [Kind.UNANSWERED]


def test_a_delivery_that_was_put_back_has_another_holder() -> None:
    late = replace(UNKNOWN, at=103.0 + 2 * LEASE)
    other = replace(KILLED, pids=frozenset({OTHER}))
    assert judge(again(103.2, late.at + 1, late, faults=(other,))) == []
    assert kinds(again(103.2, late.at + 1, late, faults=(replace(other, pids=frozenset()),))) == [Kind.PUSHED_TWICE]


def test_a_wait_is_measured_by_the_longest_fault() -> None:
    late = with_history(ADMITTED, replace(DELIVERED, at=200.0))
    long = replace(KILLED, ended=150.0)
    assert judge(replace(late, delivery_patience=60.0, faults=(long,))) == []
    assert kinds(replace(late, delivery_patience=60.0, faults=(replace(long, ended=120.0),))) == [Kind.STARVED]


def test_what_beat_publishes_may_be_out_of_date() -> None:
    overdue = replace(failed(FAILED), answers=(*GOOD.answers[:2], answered(SUCCESS, at=134.0)))
    assert judge(replace(overdue, faults=(KILLED,))) == []
    assert judge(replace(overdue, faults=(replace(KILLED, part="node"),))) == []
    assert kinds(overdue) == [Kind.FALSE_SUCCESS]


def test_a_failure_is_forgotten_with_its_device() -> None:
    false = replace(failed(FAILED), answers=(*GOOD.answers[:2], answered(SUCCESS, at=110.0)))
    unregistration = Happened(kind="unregistered", trace_id="ee" * 8, at=107.0, installation=PSEUDONYM)
    rowless = replace(false, events=(*false.events, unregistration), deliveries={})
    assert judge(rowless) == []
    before = replace(unregistration, at=100.5)
    assert Kind.FALSE_SUCCESS in kinds(replace(false, events=(*false.events, before)))


def test_a_slow_node_takes_an_answer_later() -> None:
    false = replace(failed(FAILED), answers=(*GOOD.answers[:2], answered(SUCCESS, at=107.0)))
    slow = replace(KILLED, name="the node is slow", part="node", pids=frozenset(), began=106.0, ended=107.0)
    assert kinds(false) == [Kind.FALSE_SUCCESS]
    assert judge(replace(false, faults=(slow,))) == []
    late = answered(SUCCESS, at=110.0)
    assert kinds(replace(false, faults=(slow,), answers=(*GOOD.answers[:2], late))) == [Kind.FALSE_SUCCESS]


def test_a_query_may_lack_devices_whose_token_died() -> None:
    mortal = replace(QUERY, mortal=(CONTENT.installation_id,))
    silent = replace(GOOD, answers=(GOOD.answers[0], GOOD.answers[2]))
    assert kinds(silent) == [Kind.UNANSWERED]
    assert judge(replace(silent, sent=(REGISTRATION, mortal, REQUEST))) == []


def test_a_busy_machine_is_a_fault() -> None:
    starved = [replace(each, wait_seconds=0.9 * each.at) for each in samples(1, 1, 1, step=1.0)]
    [window] = busy([*starved, replace(starved[-1], at=3.0), replace(starved[-1], at=10.0), *samples(1, 1)])
    assert (window.began, window.ended) == (0.0, 2.0)
    explained = replace(window, began=110.0, ended=120.0)
    assert judge(again(103.2, 141.0, UNKNOWN, faults=(explained,))) == []


def test_unknown_outcomes_are_ordered_by_time() -> None:
    late = replace(UNKNOWN, at=141.5, failure="gorush_failed", attempt=2)
    gorush = Window(name="gorush is killed", began=141.0, ended=142.0, part="gorush")
    evidence = again(103.2, 141.0, late, UNKNOWN, faults=(KILLED, gorush))
    third = Pushed(delivery_key=KEY, outcome="delivered", at=150.0)
    assert judge(replace(evidence, pushes=(*evidence.pushes, third))) == []


def test_repeat_with_doubtful_token_may_be_a_mismatch() -> None:
    evidence = with_answers(answered("VERSION_MISMATCH", id_=REGISTRATION.id, about=()))
    mortal = replace(REGISTRATION, mortal=(CONTENT.installation_id,))
    assert kinds(evidence) == [Kind.ANSWERED_WRONGLY]
    assert (
        kinds(replace(evidence, sent=tuple(mortal if each == REGISTRATION else each for each in evidence.sent))) == []
    )
