"""The budget of a device: who is charged, and what is pushed beyond it."""

from dataclasses import replace

from support.deciding import (
    ALICE,
    ALLOW,
    BOB,
    IDENTITY,
    INTERNAL,
    MENTION,
    NOT_REGISTERED,
    PHONE,
    SUCCESS,
    TABLET,
    TO_NOBODY,
    WRONG,
    WRONG_TOKEN,
    asking,
    charge,
    installation,
    item,
    known,
    messages,
    receiver,
    reports,
    target,
    told,
)
from wakupush.model.limits import DEVICE_PUSHES, Verdicts
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.server.push.decide import decide


def test_filtered_requests_with_the_token_are_charged():
    """Or an error, or the budget that is left, would tell of the filter."""
    items = [item(), WRONG, item(type=MENTION), item(device=TABLET), item(), TO_NOBODY, item(type=99)]
    [outcome] = decide(messages(asking(*items)), known(limits={"pushes_per_device_per_minute": 4}), ALLOW)
    charged = ((0, PHONE), (2, PHONE), (3, TABLET), (4, PHONE))
    assert outcome.limits == tuple(charge(1, position, device, 4) for position, device in charged)
    assert reports(outcome) == [SUCCESS, WRONG_TOKEN, SUCCESS, SUCCESS, SUCCESS, NOT_REGISTERED, INTERNAL]
    dead = known(receivers={installation(ALICE): receiver(token_died=True, enabled=False)})
    [outcome] = decide(messages(asking(item())), dead, ALLOW)
    assert (outcome.limits, reports(outcome)) == ((), [NOT_REGISTERED])


def test_a_device_has_one_budget_under_all_its_keys():
    """And another one under a topic or a platform with which its token reaches nobody."""
    one = target()
    assert IDENTITY.device_digest(one) == IDENTITY.device_digest(replace(one, version=7, installation_id=TABLET))
    others = [{"device_token": "other"}, {"apn_topic": "other"}, {"platform": Platform.ANDROID}]
    assert len({IDENTITY.device_digest(replace(one, **fields)) for fields in ({}, *others)}) == 4
    both = {installation(user): receiver() for user in (ALICE, BOB)}
    [outcome] = decide(messages(asking(item(), item(BOB))), known(receivers=both), ALLOW)
    assert len({limit.key for limit in outcome.limits}) == 1


def over_budget(asked, facts):
    """Return the outcomes of requests for which no budget is left."""
    charged = {limit: False for outcome in decide(asked, facts, ALLOW) for limit in outcome.limits}
    return decide(asked, facts, Verdicts({limit: limit.name != DEVICE_PUSHES for limit in charged}))


def test_beyond_its_budget_one_push_a_minute_has_no_content():
    both = {installation(user): receiver() for user in (ALICE, BOB)} | {installation(ALICE, TABLET): receiver()}
    asked = messages(asking(item(), item(message=b"2")), asking(item(BOB), number=2), asking(item(), number=3))
    outcomes = over_budget(asked, known(receivers=both))
    assert [reports(outcome) for outcome in outcomes] == [[SUCCESS] * 2, [SUCCESS], [SUCCESS]]
    [admission] = [admission for outcome in outcomes for admission in outcome.admissions]
    delivery = admission.delivery
    assert (delivery.chat_id, delivery.message, delivery.notification_type) == (b"", b"", NotificationType.MESSAGE)
    assert {key for outcome in outcomes for key in outcome.request.delivery_keys} == {delivery.delivery_key}
    assert told(outcomes[0]) == ["received", "opened", "answered"]


def test_notifications_without_content_collapse_by_device():
    def collapsed(device, now):
        [outcome] = over_budget(messages(asking(item(device=device))), known(now=now))
        [admission] = outcome.admissions
        return admission.delivery.delivery_key

    first, again, later = (collapsed(PHONE, now) for now in (120.0, 179.9, 180.0))
    assert first == again != later
    # iOS has the first half as collapse id, see `wakupush.server.delivery.attempt`.
    assert first[:16] == later[:16] != collapsed(TABLET, 120.0)[:16]


def test_beyond_its_budget_filtered_stays_filtered():
    [outcome] = over_budget(messages(asking(item(type=MENTION))), known())
    assert (outcome.admissions, reports(outcome)) == ((), [SUCCESS])
