"""Deciding on push requests: who is notified, once, and the answer to the sender."""

from dataclasses import replace
from uuid import UUID

import pytest

from support.deciding import (
    ALICE,
    ALLOW,
    BOB,
    CAROL,
    FILTERED_ITEM,
    IDENTITY,
    LEASE,
    LOST_ITEM,
    NOW,
    PHONE,
    TABLET,
    WRONG_ITEM,
    Device,
    address,
    admitted_keys,
    context,
    decide_requests,
    delivery_keys,
    entry,
    failures,
    installation,
    item,
    kinds,
    messages,
    push_request,
    request_answers,
    request_facts,
    target,
)
from wakupush.model.deliveries import Delivery, RememberedRequest
from wakupush.model.events import EventKind, merge_alike, message_event
from wakupush.model.failures import Answer, Failure
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.queues import DISPATCH
from wakupush.protocol.application import Type
from wakupush.protocol.notification import MOST_DATA_BYTES, data
from wakupush.protocol.request import Filtered, parse_response
from wakupush.server.engine.message import Part
from wakupush.server.engine.outcome import Outcome
from wakupush.server.push.decide import Admission, ExpiredRequest, decide

SUCCESS, INTERNAL = None, Answer.INTERNAL_ERROR
OPENED = [EventKind.RECEIVED, EventKind.OPENED]
JOINING = NotificationType.REQUEST_TO_JOIN_COMMUNITY


@pytest.mark.parametrize(
    ("item", "preferences", "reason"),
    [
        (item(), {}, None),
        (item(CAROL), {}, Failure.NOT_REGISTERED),
        (item(), {"token_died": True}, Failure.NOT_REGISTERED),
        (item(access_token="x"), {"enabled": False}, Failure.WRONG_TOKEN),
        (item(type=99), {}, Failure.NOTIFICATION_TYPE_UNKNOWN),
        (item(), {"enabled": False}, Filtered.DISABLED),
        (FILTERED_ITEM, {}, Filtered.MENTION_NOT_ALLOWED),
    ],
)
def test_an_item_is_refused_filtered_or_admitted(item, preferences, reason):
    devices = {installation(ALICE): Device(preferences=preferences)}
    [outcome] = decide_requests(push_request(item), devices=devices)
    failure = reason if isinstance(reason, Failure) else None
    is_filtered = isinstance(reason, Filtered)
    withheld = [EventKind.REFUSED] if failure else [EventKind.FILTERED] if is_filtered else []
    assert kinds(outcome) == [*OPENED, *withheld, EventKind.ANSWERED]
    assert failures(outcome) == ([failure] * 2 if failure else [])
    assert [event.reason for event in outcome.events if event.reason] == ([reason.value] if is_filtered else [])
    assert request_answers(outcome) == [failure and failure.answer]
    key = delivery_keys(item)[0] if reason is None else None
    assert admitted_keys(outcome) == ([key] if key else [])
    assert outcome.effect.failures == (failure,)
    assert outcome.effect.delivery_keys == (key,)
    assert outcome.delivery_keys == ({key} if key else set())


@pytest.mark.parametrize("item", [WRONG_ITEM, LOST_ITEM, FILTERED_ITEM])
def test_only_admitted_items_have_pseudonyms(item):
    [outcome] = decide_requests(push_request(item))
    assert len(outcome.events) == 2
    assert {(event.key_pseudonym, event.installation_pseudonym) for event in outcome.events} == {(None, None)}


def test_items_leave_one_event_for_each_reason():
    """However many they are, what is refused or filtered is counted; what is admitted has an event of its own."""
    request = push_request(*([WRONG_ITEM] * 40 + [LOST_ITEM] * 30 + [FILTERED_ITEM] * 20), item(), item(device=TABLET))
    [outcome] = decide_requests(request)
    events = merge_alike([*outcome.events, *(admission.event for admission in outcome.effect.admissions)])
    assert [(event.kind, event.failure or event.reason, event.count) for event in events] == [
        (EventKind.REFUSED, Failure.WRONG_TOKEN.label, 40),
        (EventKind.REFUSED, Failure.NOT_REGISTERED.label, 30),
        (EventKind.FILTERED, Filtered.MENTION_NOT_ALLOWED.value, 20),
        (EventKind.ANSWERED, Failure.WRONG_TOKEN.label, 1),
        (EventKind.ADMITTED, None, 1),
        (EventKind.ADMITTED, None, 1),
    ]


@pytest.mark.parametrize(("device", "platform"), [(PHONE, Platform.IOS), (TABLET, Platform.ANDROID)])
def test_an_admitted_item_becomes_a_delivery(device, platform):
    joining = item(device=device, type=JOINING)
    [outcome] = decide_requests(push_request(joining))
    [admission] = outcome.effect.admissions
    named = installation(ALICE, device)
    delivery = Delivery(
        delivery_key=delivery_keys(joining)[0],
        installation=named,
        platform=platform,
        notification_type=JOINING,
        chat_id=b"chat",
        message=b"message",
        attempt=1,
        lease=LEASE,
        task_id=admission.delivery.task_id,
        trace_id=entry(1).trace_id,
        seen=NOW - 3,
        expires_at=NOW + 7 * 86_400,
        address=address(joining),
    )
    pseudonyms = IDENTITY.pseudonyms(named, period=0)
    event = message_event(
        context(DISPATCH).task,
        entry(1),
        EventKind.ADMITTED,
        NOW,
        platform=platform.label,
        push_type="join_request",
        pseudonyms=pseudonyms,
    )
    assert admission == Admission(delivery, target(platform), event)
    assert UUID(admission.delivery.task_id).version == 4


@pytest.mark.parametrize("size", [1, MOST_DATA_BYTES // 2, 100_000])
def test_a_delivery_holds_what_fits_into_a_post(size):
    large = item(message=b"x" * size)
    [outcome] = decide_requests(push_request(large))
    [admission] = outcome.effect.admissions
    delivery = admission.delivery
    assert delivery.message == (large.message if size == 1 else b"")
    assert delivery.delivery_key == delivery_keys(large)[0], "the identity is that of the request as it came"
    profile = context(DISPATCH).profiles.of("")
    whole = replace(delivery, message=large.message)
    assert data(profile, delivery, admission.target) == data(profile, whole, admission.target)


def test_task_ids_depend_on_seed_and_delivery():
    request = push_request(item(), item(device=TABLET))
    ids = [
        [admission.delivery.task_id for admission in outcome.effect.admissions]
        for seed in (bytes(16), bytes(16), b"other".ljust(16))
        for outcome in decide(messages(request), request_facts(request), ALLOW, context(DISPATCH, seed=seed))
    ]
    assert ids[0] == ids[1]
    assert len({*ids[0], *ids[2]}) == 4


def test_items_are_decided_independently():
    items = [FILTERED_ITEM, WRONG_ITEM, item(), LOST_ITEM, item(device=TABLET), item(type=99)]
    [outcome] = decide_requests(push_request(*items))
    assert request_answers(outcome) == [
        *(SUCCESS, Answer.WRONG_TOKEN, SUCCESS),
        *(Answer.NOT_REGISTERED, SUCCESS, INTERNAL),
    ]
    refused = EventKind.REFUSED
    assert kinds(outcome) == [*OPENED, EventKind.FILTERED, refused, refused, refused, EventKind.ANSWERED]
    assert failures(outcome) == [
        *(Failure.WRONG_TOKEN, Failure.NOT_REGISTERED, Failure.NOTIFICATION_TYPE_UNKNOWN, Failure.WRONG_TOKEN),
    ]
    phone, tablet = delivery_keys(items[2], items[4])
    assert admitted_keys(outcome) == [phone, tablet]
    assert outcome.effect.delivery_keys == (None, None, phone, None, tablet, None)
    assert outcome.replies[0].recipient == BOB.public_key
    assert outcome.replies[0].type == Type.PUSH_NOTIFICATION_RESPONSE
    response = parse_response(outcome.replies[0].inner)
    assert response.message_id == b"id 1"
    assert [report.key_hash for report in response.reports] == [item.key_hash for item in items]
    assert [report.installation_id for report in response.reports] == [item.installation_id for item in items]


def test_a_request_without_items_is_answered():
    [outcome] = decide_requests(push_request())
    assert kinds(outcome) == [*OPENED, EventKind.ANSWERED]
    assert (request_answers(outcome), outcome.effect.admissions) == ([], ())


def test_too_many_items_are_all_refused():
    [outcome] = decide_requests(push_request(item(), WRONG_ITEM, too_many=True))
    assert kinds(outcome) == [*OPENED, EventKind.REFUSED, EventKind.ANSWERED]
    assert failures(outcome) == [Failure.REQUEST_LIMIT] * 2
    assert request_answers(outcome) == [INTERNAL] * 2
    assert outcome.effect.admissions == ()
    assert outcome.effect.delivery_keys == (None, None)


def test_a_request_that_came_too_late_once_is_silent():
    request = push_request(item())
    [outcome] = decide_requests(request, over={request.message_id})
    assert outcome == Outcome(entry=entry(1), events=outcome.events)
    assert kinds(outcome) == [*OPENED, EventKind.REFUSED]
    assert failures(outcome) == [Failure.REQUEST_OVER]


@pytest.mark.parametrize(
    "content",
    [push_request(item()), push_request(item(), too_many=True), push_request(item(), number=2)],
    ids=["new", "too many items", "repeat"],
)
def test_old_requests_expire(content):
    facts = request_facts(content, admitted={push_request(number=2).message_id: RememberedRequest([True])})

    def decide_seen(seen):
        [outcome] = decide(messages(content, seen=seen), facts, ALLOW, context(DISPATCH))
        return outcome

    old = decide_seen(NOW - 601.5)  # the worker took the task a second ago
    assert old == Outcome(entry=entry(1, seen=NOW - 601.5), events=old.events)
    assert kinds(old) == [*OPENED, EventKind.EXPIRED]
    assert failures(old) == [Failure.REQUEST_EXPIRED]
    assert EventKind.EXPIRED not in kinds(decide_seen(NOW - 601))


@pytest.mark.parametrize(("live", "items", "is_remembered"), [(True, 1, True), (False, 1, False), (True, 0, False)])
def test_only_pushable_live_requests_stay_expired(live, items, is_remembered):
    """One that only claims to be old does not: an honest one in another envelope would be lost by it."""
    request = push_request(WRONG_ITEM, LOST_ITEM, *[item()] * items)
    [message] = messages(request, seen=0.0)
    old = replace(message, entry=replace(message.entry, live=live))
    [outcome] = decide([old], request_facts(request), ALLOW, context(DISPATCH))
    assert outcome.effect == (ExpiredRequest(request.message_id) if is_remembered else None)


def test_each_outcome_ends_its_parts():
    part = Part(None, None, None)
    requests = push_request(item()), push_request(item()), push_request(number=2, too_many=True)
    batch = messages(*requests, last_part=part) + messages(push_request(item()), seen=0.0, last_part=part)
    outcomes = decide(batch, request_facts(*requests), ALLOW, context(DISPATCH))
    assert [outcome.last_part for outcome in outcomes] == [part] * 4
