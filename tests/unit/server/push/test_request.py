"""Deciding on push requests: who is notified, once, and what the sender is told."""

from dataclasses import replace
from uuid import UUID

import pytest

from support.deciding import (
    ALICE,
    ALLOW,
    BOB,
    CAROL,
    CHAT,
    IDENTITY,
    INTERNAL,
    JOINING,
    LEASE,
    MENTION,
    NOT_REGISTERED,
    NOW,
    PHONE,
    SUCCESS,
    TABLET,
    TO_NOBODY,
    WRONG,
    WRONG_TOKEN,
    address,
    asking,
    entry,
    installation,
    item,
    keys,
    known,
    messages,
    pushed,
    receiver,
    reports,
    told,
)
from wakupush.model.deliveries import Delivery, RememberedRequest
from wakupush.model.events import EventKind, merge_alike, message_event
from wakupush.model.failures import Failure
from wakupush.model.platforms import Platform
from wakupush.protocol.application import Type
from wakupush.protocol.notification import MOST_DATA_BYTES, data
from wakupush.protocol.request import Filtered, parse_response
from wakupush.server.engine.message import Message, Part, RefusedContent
from wakupush.server.engine.outcome import Admission, Outcome
from wakupush.server.push.decide import decide

ANSWERED = ["received", "opened", "answered"]


@pytest.mark.parametrize(
    ("asked", "preferences", "decision"),
    [
        (item(), {}, None),
        (item(CAROL), {}, Failure.NOT_REGISTERED),
        (item(), {"token_died": True}, Failure.NOT_REGISTERED),
        (item(access_token="x"), {"enabled": False}, Failure.WRONG_TOKEN),
        (item(type=99), {}, Failure.NOTIFICATION_TYPE_UNKNOWN),
        (item(), {"enabled": False}, Filtered.DISABLED),
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
    assert len(outcome.limits) == (failure is None)


@pytest.mark.parametrize("asked", [item(access_token="x"), item(CAROL), item(type=MENTION)])
def test_of_whom_an_item_was_is_not_told_unless_it_is_taken_on(asked):
    [outcome] = decide(messages(asking(asked)), known(), ALLOW)
    assert len(outcome.events) == 2
    assert {(event.key_pseudonym, event.installation_pseudonym) for event in outcome.events} == {(None, None)}


def test_items_leave_an_event_for_each_outcome_and_reason():
    """However many they are, what is refused or filtered is counted; what is taken on has an event of its own."""
    mention = item(type=MENTION)
    asked = asking(*[WRONG] * 40, *[TO_NOBODY] * 30, *[mention] * 20, item(), item(device=TABLET))
    [outcome] = decide(messages(asked), known(), ALLOW)
    told = merge_alike([*outcome.events, *(admission.event for admission in outcome.admissions)])
    assert [(event.kind, event.failure or event.reason, event.count) for event in told] == [
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


@pytest.mark.parametrize("size", [1, MOST_DATA_BYTES // 2, 100_000])
def test_what_is_stored_of_a_message_is_what_is_posted(size):
    asked, facts = item(message=b"x" * size), known()
    [outcome] = decide(messages(asking(asked)), facts, ALLOW)
    [admission] = outcome.admissions
    stored = admission.delivery
    assert stored.message == (asked.message if size == 1 else b"")
    assert stored.delivery_key == keys(asked)[0], "the identity is that of the request as it came"
    dialect, target = facts.settings.gorush.dialect, admission.target
    assert data(dialect, stored, target) == data(dialect, replace(stored, message=asked.message), target)


def test_ids_come_of_the_seed_and_the_delivery():
    asked = messages(asking(item(), item(device=TABLET)))
    ids = [
        [admission.delivery.task_id for admission in outcome.admissions]
        for seed in (bytes(16), bytes(16), b"other".ljust(16))
        for outcome in decide(asked, known(seed=seed), ALLOW)
    ]
    assert ids[0] == ids[1]
    assert len({*ids[0], *ids[2]}) == 4


def test_each_item_is_decided_by_itself():
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
    facts = known(
        admitted={asking(number=2).message_id: RememberedRequest([True])}, limits={"pushes_per_device_per_minute": 1}
    )
    # The worker took the task a second ago.
    [old] = decide(messages(content, seen=NOW - 601.5), facts, ALLOW)
    assert old == Outcome(entry=entry(1, seen=NOW - 601.5), events=old.events)
    assert told(old) == ["received", "opened", "expired: request_expired"]
    [in_time] = decide(messages(content, seen=NOW - 601), facts, ALLOW)
    assert EventKind.EXPIRED not in {event.kind for event in in_time.events}


def test_parts_are_forgotten_whatever_becomes_of_the_request():
    part = Part(None, None)
    refused = RefusedContent(BOB.public_key, Failure.INNER_MALFORMED)
    contents = [asking(item()), asking(item()), asking(number=2, too_many=True), refused]
    sent = [Message(entry(number), each, part) for number, each in enumerate(contents)]
    sent.append(Message(entry(4, seen=0.0), asking(item()), part))
    assert [outcome.forget for outcome in decide(sent, known(), ALLOW)] == [part] * 5
