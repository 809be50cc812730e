"""The budget of a device: which notifications are counted for it, and what is pushed beyond it."""

from dataclasses import replace

from support.deciding import (
    ALICE,
    BOB,
    CAROL,
    DEVICES,
    FILTERED_ITEM,
    IDENTITY,
    LOST_ITEM,
    PHONE,
    TABLET,
    WRONG_ITEM,
    Device,
    admitted_keys,
    context,
    decide_requests,
    entry,
    hold_back,
    installation,
    item,
    kinds,
    messages,
    push_request,
    request_answers,
    request_facts,
    target,
)
from wakupush.model.deliveries import RememberedRequest
from wakupush.model.events import EventKind
from wakupush.model.failures import Answer
from wakupush.model.limits import DEVICE_PUSHES, MINUTE, REPEATS, Limit
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.queues import DISPATCH
from wakupush.server.push.charge import charge
from wakupush.server.push.decide import decide

SUCCESS = None
#: Bob's phone has the device token of Alice's.
SHARED = DEVICES | {installation(BOB): Device()}


def limits_of(*requests, limits=None, seen=None, **facts):
    """Return the limits that requests of one task are counted for."""
    batch = messages(*requests) if seen is None else messages(*requests, seen=seen)
    return list(charge(batch, request_facts(*requests, **facts), context(DISPATCH, limits=limits)))


def device_limit(number=1, position=0, device=PHONE, *, most=60, after=None):
    """Return the limit of an item, in the envelope of a number, for one of Alice's devices."""
    digest = IDENTITY.device_digest(target({PHONE: Platform.IOS, TABLET: Platform.ANDROID}[device])).hex()
    return Limit(DEVICE_PUSHES, most, MINUTE, entry(number).hash, position, digest, after=after)


def repeat_limit(request, number):
    return Limit(REPEATS, 3, MINUTE, entry(number).hash, key=request.message_id.hex())


def test_items_with_the_access_token_are_counted():
    """Whatever becomes of them: an error, or the budget that is left, would show the wishes of their receiver."""
    items = [item(), WRONG_ITEM, FILTERED_ITEM, item(device=TABLET), item(), LOST_ITEM, item(type=99)]
    counted = ((0, PHONE), (2, PHONE), (3, TABLET), (4, PHONE), (6, PHONE))
    assert limits_of(push_request(*items), limits={"pushes_per_device_per_minute": 4}) == [
        device_limit(1, position, device, most=4) for position, device in counted
    ]
    dead = {installation(ALICE): Device(preferences={"token_died": True, "enabled": False})}
    assert limits_of(push_request(item()), devices=dead) == [device_limit()]
    assert limits_of(push_request(WRONG_ITEM, LOST_ITEM)) == []


def test_silent_and_excessive_requests_are_not_counted():
    request = push_request(item())
    assert limits_of(request, over={request.message_id}) == []
    assert limits_of(request, seen=0.0) == []
    assert limits_of(push_request(item(), too_many=True)) == []


def test_copies_in_a_task_are_repeats():
    """The second has the outcome of the first, so its items are not counted again."""
    request = push_request(item(), WRONG_ITEM)
    other_sender = replace(request, sender=CAROL.public_key)
    assert limits_of(request, request, other_sender) == [
        device_limit(1),
        repeat_limit(request, 2),
        repeat_limit(request, 3),
    ]
    too_many = push_request(item(), too_many=True)
    assert limits_of(too_many, too_many) == [repeat_limit(too_many, 2)]


def test_remembered_items_count_after_their_repeat():
    """For items that did not succeed; and each of them, because the first may be held back."""
    request = push_request(item(), item(device=TABLET), WRONG_ITEM)
    admitted = {request.message_id: RememberedRequest([True, False, False])}
    repeats = [repeat_limit(request, number) for number in (1, 2)]
    assert limits_of(request, request, push_request(item(), number=2), admitted=admitted) == [
        repeats[0],
        device_limit(1, 1, TABLET, after=repeats[0]),
        repeats[1],
        device_limit(2, 1, TABLET, after=repeats[1]),
        device_limit(3),
    ]


def test_a_device_has_one_budget_under_all_its_keys():
    """And another one under a topic or a platform with which its token reaches nobody."""
    one = target()
    assert IDENTITY.device_digest(one) == IDENTITY.device_digest(replace(one, version=7, installation_id=TABLET))
    others = [{"device_token": "other"}, {"apn_topic": "other"}, {"platform": Platform.ANDROID}]
    assert len({IDENTITY.device_digest(replace(one, **fields)) for fields in ({}, *others)}) == 4
    assert len({limit.key for limit in limits_of(push_request(item(), item(BOB)), devices=SHARED)}) == 1


def over_budget(*requests, devices=DEVICES):
    """Return the outcomes of requests for which no budget is left."""
    limits = limits_of(*requests, devices=devices)
    verdicts = hold_back(*(limit for limit in limits if limit.name == DEVICE_PUSHES))
    return decide_requests(*requests, devices=devices, verdicts=verdicts)


def test_beyond_its_budget_one_push_has_no_content():
    requests = (
        push_request(item(), item(message=b"2")),
        push_request(item(BOB), number=2),
        push_request(item(), number=3),
    )
    outcomes = over_budget(*requests, devices=SHARED)
    assert [request_answers(outcome) for outcome in outcomes] == [[SUCCESS] * 2, [SUCCESS], [SUCCESS]]
    [admission] = [admission for outcome in outcomes for admission in outcome.effect.admissions]
    delivery = admission.delivery
    assert (delivery.chat_id, delivery.message, delivery.notification_type) == (b"", b"", NotificationType.MESSAGE)
    assert {key for outcome in outcomes for key in outcome.effect.delivery_keys} == {delivery.delivery_key}
    assert kinds(outcomes[0]) == [EventKind.RECEIVED, EventKind.OPENED, EventKind.ANSWERED]


def test_each_item_has_its_own_verdict():
    [outcome] = decide_requests(push_request(item(), item(device=TABLET)), verdicts=hold_back(device_limit(1, 1)))
    assert [admission.delivery.message for admission in outcome.effect.admissions] == [b"message", b""]


def test_empty_pushes_collapse_by_device_and_minute():
    def collapsed(device, now):
        request = push_request(item(device=device))
        position_verdicts = hold_back(device_limit(device=device))
        facts, moment = request_facts(request), context(DISPATCH, now=now)
        [outcome] = decide(messages(request), facts, position_verdicts, moment)
        [delivery_key] = admitted_keys(outcome)
        return delivery_key

    first, again, later = (collapsed(PHONE, now) for now in (120.0, 179.9, 180.0))
    assert first == again != later
    # iOS has the first half as collapse id, see `wakupush.server.delivery.attempt`.
    assert first[:16] == later[:16] != collapsed(TABLET, 120.0)[:16]


def test_beyond_its_budget_filtered_stays_filtered():
    [outcome] = over_budget(push_request(FILTERED_ITEM))
    assert (outcome.effect.admissions, request_answers(outcome)) == ((), [SUCCESS])
    [outcome] = over_budget(push_request(item(type=99)))
    assert (outcome.effect.admissions, request_answers(outcome)) == ((), [Answer.INTERNAL_ERROR])
