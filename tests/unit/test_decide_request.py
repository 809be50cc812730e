"""Deciding on push requests: who is notified, once, and what the sender is told."""

from dataclasses import replace
from uuid import UUID

import pytest
from asking import AUTHOR, CHAT, address, asking, item, known, receiver
from deciding import (
    ALICE,
    ALLOW,
    BOB,
    CAROL,
    DENY,
    IDENTITY,
    LEASE,
    NOW,
    PHONE,
    TABLET,
    entry,
    installation,
    messages,
    told,
)

from wakupush.model.deliveries import Delivery
from wakupush.model.events import EventKind, message_event, together
from wakupush.model.failures import Answer, Failure
from wakupush.model.limits import DEVICE_PUSHES, REPEATS, Limit
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.protocol.application import Type
from wakupush.protocol.request import Filtered, delivery_key, parse_response
from wakupush.server.inbox.content import Message, Part, RefusedContent
from wakupush.server.inbox.decide import Verdicts
from wakupush.server.inbox.decide.request import corrected, decide
from wakupush.server.inbox.outcome import Admission, Outcome

SUCCESS, NOT_REGISTERED, WRONG_TOKEN, INTERNAL = (
    None,
    Answer.NOT_REGISTERED,
    Answer.WRONG_TOKEN,
    Answer.INTERNAL_ERROR,
)
ANSWERED = ["received", "opened", "answered"]
WRONG, TO_NOBODY = item(access_token="x"), item(CAROL)
MENTION, JOINING = NotificationType.MENTION, NotificationType.REQUEST_TO_JOIN_COMMUNITY


def reports(outcome):
    return [report.error for report in parse_response(outcome.reply.inner).reports] if outcome.reply else "silence"


def pushed(outcome):
    return [admission.delivery.delivery_key for admission in outcome.admissions]


def keys(*items, number=1):
    return [delivery_key(b"id %d" % number, each) for each in items]


# One item.


@pytest.mark.parametrize(
    ("asked", "preferences", "decision"),
    [
        (item(), {}, None),
        (item(type=MENTION), {"allowed_mentions_chat_list": {CHAT}}, None),
        (item(type=JOINING), {"muted_chat_list": {CHAT}}, None),
        (item(CAROL), {}, Failure.NOT_REGISTERED),
        (item(device=TABLET), {}, Failure.NOT_REGISTERED),
        (item(), {"token_died": True}, Failure.NOT_REGISTERED),
        (item(access_token="x"), {}, Failure.WRONG_TOKEN),
        (item(access_token="x"), {"enabled": False}, Failure.WRONG_TOKEN),
        (item(type=99), {}, Failure.NOTIFICATION_TYPE_UNKNOWN),
        (item(type=-1), {}, Failure.NOTIFICATION_TYPE_UNKNOWN),
        (item(), {"enabled": False}, Filtered.DISABLED),
        (item(), {"blocked_chat_list": {AUTHOR}}, Filtered.BLOCKED_AUTHOR),
        (item(), {"blocked_chat_list": {CHAT}}, Filtered.BLOCKED_CHAT),
        (item(), {"muted_chat_list": {CHAT}}, Filtered.MUTED_CHAT),
        (item(type=MENTION), {"block_mentions": True}, Filtered.MENTIONS_BLOCKED),
        (item(type=MENTION), {}, Filtered.MENTION_NOT_ALLOWED),
    ],
)
def test_what_becomes_of_an_item(asked, preferences, decision):
    receivers = {installation(ALICE): receiver(**preferences)}
    [outcome] = decide(messages(asking(asked)), known(receivers=receivers), ALLOW)
    failure = decision if isinstance(decision, Failure) else None
    kind = "refused" if failure else "filtered" if decision else None
    why = f": {failure.label}" if failure else ""
    assert told(outcome) == ["received", "opened", *([f"{kind}{why}"] if kind else []), f"answered{why}"]
    assert [event.reason for event in outcome.events if event.kind is EventKind.FILTERED] == (
        [decision.value] if isinstance(decision, Filtered) else []
    )
    assert reports(outcome) == [failure and failure.answer]
    assert pushed(outcome) == (keys(asked) if decision is None else [])
    assert outcome.request.failures == (failure,)
    assert outcome.request.delivery_keys == ((keys(asked)[0] if decision is None else None),)
    assert outcome.limits == ()


@pytest.mark.parametrize("asked", [item(access_token="x"), item(CAROL), item(type=MENTION)])
def test_of_whom_an_item_was_is_not_told_unless_it_is_taken_on(asked):
    [outcome] = decide(messages(asking(asked)), known(), ALLOW)
    assert len(outcome.events) == 4
    assert {(event.key_pseudonym, event.installation_pseudonym) for event in outcome.events} == {(None, None)}


def test_items_leave_an_event_for_each_outcome_and_reason():
    """However many they are, what is refused or filtered is counted; what is taken on has an event of its own."""
    mention = item(type=MENTION)
    asked = asking(*[WRONG] * 40, *[TO_NOBODY] * 30, *[mention] * 20, item(), item(device=TABLET))
    [outcome] = decide(messages(asked), known(), ALLOW)
    told = together([*outcome.events, *(admission.event for admission in outcome.admissions)])
    assert [(event.kind, event.failure or event.reason, event.count) for event in told] == [
        (EventKind.RECEIVED, None, 1),
        (EventKind.OPENED, None, 1),
        (EventKind.REFUSED, Failure.WRONG_TOKEN.label, 40),
        (EventKind.REFUSED, Failure.NOT_REGISTERED.label, 30),
        (EventKind.FILTERED, Filtered.MENTION_NOT_ALLOWED.value, 20),
        (EventKind.ANSWERED, Failure.WRONG_TOKEN.label, 1),
        (EventKind.ADMITTED, None, 1),
        (EventKind.ADMITTED, None, 1),
    ]


@pytest.mark.parametrize(("device", "platform"), [(PHONE, Platform.IOS), (TABLET, Platform.ANDROID)])
def test_the_delivery_of_an_admitted_item(device, platform):
    asked, facts = item(device=device, type=JOINING), known()
    [outcome] = decide(messages(asking(asked)), facts, ALLOW)
    [admission] = outcome.admissions
    named = installation(ALICE, device)
    assert admission == Admission(
        Delivery(
            delivery_key=keys(asked)[0],
            installation=named,
            platform=platform,
            notification_type=JOINING,
            chat_id=CHAT,
            message=b"message",
            attempt=1,
            lease=LEASE,
            task_id=admission.delivery.task_id,
            trace_id=entry(1).trace_id,
            seen=NOW - 3,
            address=address(asked),
        ),
        facts.receivers[address(asked)].target,
        message_event(
            facts.task,
            entry(1),
            EventKind.ADMITTED,
            NOW,
            platform=platform.label,
            pseudonyms=IDENTITY.pseudonyms(named),
        ),
    )
    assert UUID(admission.delivery.task_id).version == 4


def test_ids_come_of_the_seed_and_the_delivery():
    asked = messages(asking(item(), item(device=TABLET)))
    ids = [
        [admission.delivery.task_id for admission in outcome.admissions]
        for seed in (bytes(16), bytes(16), b"other".ljust(16))
        for outcome in decide(asked, known(seed=seed), ALLOW)
    ]
    assert ids[0] == ids[1]
    assert len({*ids[0], *ids[2]}) == 4


# One request.


def test_each_item_is_decided_by_itself_and_the_first_failure_is_told():
    asked = [item(type=MENTION), WRONG, item(), TO_NOBODY, item(device=TABLET), item(type=99)]
    [outcome] = decide(messages(asking(*asked)), known(), ALLOW)
    assert reports(outcome) == [SUCCESS, WRONG_TOKEN, SUCCESS, NOT_REGISTERED, SUCCESS, INTERNAL]
    assert told(outcome) == [
        "received",
        "opened",
        "filtered",
        "refused: wrong_token",
        "refused: not_registered",
        "refused: notification_type_unknown",
        "answered: wrong_token",
    ]
    assert pushed(outcome) == keys(asked[2], asked[4])
    assert outcome.request.delivery_keys == (None, None, keys(asked[2])[0], None, keys(asked[4])[0], None)
    assert outcome.reply.recipient == BOB.public_key
    assert outcome.reply.type == Type.PUSH_NOTIFICATION_RESPONSE
    response = parse_response(outcome.reply.inner)
    assert response.message_id == b"id 1"
    assert [report.key_hash for report in response.reports] == [each.key_hash for each in asked]
    assert [report.installation_id for report in response.reports] == [each.installation_id for each in asked]


def test_a_request_without_items_is_answered():
    [outcome] = decide(messages(asking()), known(), ALLOW)
    assert (told(outcome), reports(outcome), outcome.admissions) == (ANSWERED, [], ())


def test_the_same_item_twice_is_pushed_once_and_reported_twice():
    [outcome] = decide(messages(asking(item(), WRONG, item())), known(), ALLOW)
    assert reports(outcome) == [SUCCESS, WRONG_TOKEN, SUCCESS]
    assert pushed(outcome) == keys(item())
    assert outcome.request.delivery_keys == (*keys(item()), None, *keys(item()))


def test_items_that_differ_in_what_is_shown_are_pushed_each():
    items = [item(), item(message=b"other"), item(chat_id=b"other"), item(type=JOINING), item(device=TABLET)]
    [outcome] = decide(messages(asking(*items)), known(), ALLOW)
    assert pushed(outcome) == keys(*items)


def test_too_many_items_are_refused_each():
    [outcome] = decide(messages(asking(item(), WRONG, too_many=True)), known(), ALLOW)
    assert told(outcome) == ["received", "opened", "refused: request_limit", "answered: request_limit"]
    assert reports(outcome) == [INTERNAL] * 2
    assert (outcome.admissions, outcome.limits) == ((), ())
    assert outcome.request.delivery_keys == (None, None)


@pytest.mark.parametrize("failure", [Failure.INNER_MALFORMED, Failure.MESSAGE_ID_MISSING])
def test_content_that_is_refused_is_met_by_silence(failure):
    [outcome] = decide(messages(RefusedContent(BOB.public_key, failure)), known(), ALLOW)
    assert outcome == Outcome(entry=entry(1), events=outcome.events)
    assert told(outcome) == ["received", "opened", f"refused: {failure.label}"]


@pytest.mark.parametrize(
    "content",
    [
        asking(item()),
        asking(item(), too_many=True),
        asking(item(), number=2),
        RefusedContent(BOB.public_key, Failure.INNER_MALFORMED),
    ],
)
def test_what_is_too_old_is_not_looked_at(content):
    facts = known(admitted={asking(number=2).message_id: [True]}, limits={"pushes_per_device_per_minute": 1})
    # The worker took the task a second ago.
    [old] = decide(messages(content, seen=NOW - 601.5), facts, ALLOW)
    assert old == Outcome(entry=entry(1, seen=NOW - 601.5), events=old.events)
    assert told(old) == ["received", "opened", "expired: request_expired"]
    [in_time] = decide(messages(content, seen=NOW - 601), facts, ALLOW)
    assert EventKind.EXPIRED not in {event.kind for event in in_time.events}


def test_the_parts_of_a_request_are_forgotten_whatever_becomes_of_it():
    part = Part(None, None)
    refused = RefusedContent(BOB.public_key, Failure.INNER_MALFORMED)
    contents = [asking(item()), asking(item()), asking(number=2, too_many=True), refused]
    sent = [Message(entry(number), each, part) for number, each in enumerate(contents)]
    sent.append(Message(entry(4, seen=0.0), asking(item()), part))
    assert [outcome.forget for outcome in decide(sent, known(), ALLOW)] == [part] * 5


# Requests that come again.


def test_the_same_request_in_two_envelopes_is_answered_alike_and_pushed_once():
    asked = asking(item(), WRONG, item(type=MENTION))
    first, second = decide(messages(asked, asked), known(), ALLOW)
    assert reports(first) == reports(second) == [SUCCESS, WRONG_TOKEN, SUCCESS]
    assert (pushed(first), pushed(second)) == (keys(item()), [])
    assert second.request == first.request  # so a post that fails corrects both
    assert second.reply == first.reply
    assert told(second) == ["received", "opened", "answered: wrong_token"]


def test_each_who_sends_the_same_unsigned_request_gets_its_answer():
    outcomes = decide(messages(asking(item()), asking(item(), sender=CAROL), asking(item())), known(), ALLOW)
    assert [outcome.reply.recipient for outcome in outcomes] == [each.public_key for each in (BOB, CAROL, BOB)]
    assert [len(outcome.admissions) for outcome in outcomes] == [1, 0, 0]


def test_different_requests_with_the_same_notification_push_it_once():
    asked = [asking(item(), message_id=b"same"), asking(item(), WRONG, message_id=b"same", number=2)]
    first, second = decide(messages(*asked), known(), ALLOW)
    assert (len(first.admissions), len(second.admissions)) == (1, 0)
    assert reports(second) == [SUCCESS, WRONG_TOKEN]
    assert second.request.delivery_keys == (*first.request.delivery_keys, None)


def before(*succeeded, **limits):
    return known(admitted={asking().message_id: succeeded}, limits=limits)


def test_what_succeeded_before_does_so_again_without_a_push_and_what_failed_is_tried_anew():
    asked = asking(item(), item(device=TABLET), WRONG, item(CAROL))
    [outcome] = decide(messages(asked), before(True, False, False, True), ALLOW)
    assert reports(outcome) == [SUCCESS, SUCCESS, WRONG_TOKEN, SUCCESS]
    assert pushed(outcome) == keys(item(device=TABLET))
    assert outcome.request.delivery_keys == (None, *keys(item(device=TABLET)), None, None)
    assert told(outcome) == ["received", "opened", "refused: wrong_token", "answered: wrong_token"]
    assert outcome.limits == (Limit(REPEATS, 3, entry(1).hash, key=asked.message_id.hex()),)


def test_a_repeat_too_many_is_met_by_silence_and_its_twin_has_a_limit_of_its_own():
    asked = messages(asking(item()), asking(item()), asking(item(), number=2))
    facts = before(False, repeats_per_minute=7)
    outcomes = decide(asked, facts, ALLOW)
    limits = [Limit(REPEATS, 7, entry(number).hash, key=asking().message_id.hex()) for number in (1, 2)]
    assert [outcome.limits for outcome in outcomes] == [(limits[0],), (limits[1],), ()]
    assert [len(outcome.admissions) for outcome in outcomes] == [1, 0, 1]
    outcomes = decide(asked, facts, Verdicts({limits[0]: False, limits[1]: True}, otherwise=False))
    assert told(outcomes[0]) == ["received", "opened", "refused: repeated_too_often"]
    assert outcomes[0] == Outcome(entry=entry(1), events=outcomes[0].events, limits=(limits[0],))
    assert [len(outcome.admissions) for outcome in outcomes] == [0, 1, 1]


# Pushes of a device.


def test_the_limit_of_a_device_is_asked_for_each_item_that_would_be_pushed():
    items = [item(), WRONG, item(type=MENTION), item(device=TABLET), item(), TO_NOBODY]
    [outcome] = decide(messages(asking(*items)), known(limits={"pushes_per_device_per_minute": 4}), ALLOW)
    assert outcome.limits == tuple(
        Limit(DEVICE_PUSHES, 4, entry(1).hash, position, installation(ALICE, device).installation_hash.hex())
        for position, device in ((0, PHONE), (3, TABLET), (4, PHONE))
    )
    assert reports(outcome) == [SUCCESS, WRONG_TOKEN, SUCCESS, SUCCESS, SUCCESS, NOT_REGISTERED]
    [again] = decide(messages(asking(*items)), known(), DENY)
    assert (again.limits, reports(again)) == ((), reports(outcome))


def test_pushes_too_many_are_refused_by_their_positions():
    items = [item(), item(message=b"2"), item(device=TABLET)]
    facts = known(limits={"pushes_per_device_per_minute": 1})
    [allowed] = decide(messages(asking(*items)), facts, ALLOW)
    [outcome] = decide(messages(asking(*items)), facts, Verdicts({allowed.limits[1]: False}))
    assert outcome.limits == allowed.limits
    assert reports(outcome) == [SUCCESS, INTERNAL, SUCCESS]
    assert pushed(outcome) == keys(items[0], items[2])
    assert outcome.request.failures == (None, Failure.DEVICE_RATE_LIMIT, None)
    assert told(outcome) == ["received", "opened", "refused: device_rate_limit", "answered: device_rate_limit"]


def test_a_notification_that_is_refused_the_first_time_is_pushed_the_second():
    facts = known(limits={"pushes_per_device_per_minute": 1})
    asked = messages(asking(item(), item()), asking(item(), number=2, message_id=b"id 1"))
    limits = [limit for outcome in decide(asked, facts, ALLOW) for limit in outcome.limits]
    outcomes = decide(asked, facts, Verdicts({limits[0]: False, limits[1]: False}))
    assert [pushed(outcome) for outcome in outcomes] == [[], keys(item())]
    outcomes = decide(asked, facts, Verdicts({limits[0]: False}))
    assert [pushed(outcome) for outcome in outcomes] == [keys(item()), []]
    assert reports(outcomes[0]) == [INTERNAL, SUCCESS]


# Corrections.


def test_what_failed_for_good_is_told_in_the_place_of_success():
    facts = known()
    [outcome] = decide(messages(asking(item(), WRONG, item(device=TABLET), item())), facts, ALLOW)
    failed = {keys(item())[0]: Failure.TOKEN_UNREGISTERED, b"another": Failure.PAYLOAD_TOO_LARGE}
    correction = corrected(facts.task, outcome, failed, NOW + 1)
    assert reports(correction) == [NOT_REGISTERED, WRONG_TOKEN, SUCCESS, NOT_REGISTERED]
    assert correction.reply.recipient == BOB.public_key
    assert corrected(facts.task, correction, {}, NOW + 2) is None
    failures = (Failure.TOKEN_UNREGISTERED, Failure.WRONG_TOKEN, None, Failure.TOKEN_UNREGISTERED)
    assert correction.request == replace(outcome.request, failures=failures)
    answered = message_event(facts.task, entry(1), EventKind.ANSWERED, NOW + 1, failure=Failure.TOKEN_UNREGISTERED)
    assert correction == Outcome(entry=entry(1), events=(answered,), reply=correction.reply, request=correction.request)


@pytest.mark.parametrize("failed", [{}, {b"another": Failure.TOKEN_UNREGISTERED}])
def test_what_did_not_fail_needs_no_correction(failed):
    outcomes = decide(
        messages(asking(item(), WRONG), asking(), RefusedContent(BOB.public_key, Failure.INNER_MALFORMED)),
        known(),
        ALLOW,
    )
    assert [corrected(known().task, outcome, failed, NOW) for outcome in outcomes] == [None] * 3


def test_both_answers_to_a_request_in_two_envelopes_are_corrected_and_no_other():
    asked = [asking(item()), asking(item(), sender=CAROL), asking(item(), number=2), asking(WRONG, number=3)]
    outcomes = decide(messages(*asked), known(), ALLOW)
    failed = {keys(item())[0]: Failure.TOKEN_REJECTED}
    corrections = [corrected(known().task, outcome, failed, NOW) for outcome in outcomes]
    assert [each and reports(each) for each in corrections] == [[INTERNAL], [INTERNAL], None, None]
    assert [each.reply.recipient for each in corrections[:2]] == [BOB.public_key, CAROL.public_key]
