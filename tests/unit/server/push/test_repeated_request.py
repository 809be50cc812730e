"""Deciding on push requests that come again, and correcting answers that became wrong."""

from dataclasses import replace

import pytest

from support.deciding import (
    BOB,
    CAROL,
    FILTERED_ITEM,
    NOW,
    TABLET,
    WRONG_ITEM,
    admitted_keys,
    context,
    decide_requests,
    delivery_keys,
    entry,
    failures,
    hold_back,
    item,
    kinds,
    push_request,
    request_answers,
)
from wakupush.model.deliveries import RememberedRequest
from wakupush.model.events import EventKind, message_event
from wakupush.model.failures import Answer, Failure
from wakupush.model.limits import MINUTE, REPEATS, Limit
from wakupush.model.queues import DISPATCH
from wakupush.server.engine.outcome import Outcome
from wakupush.server.push.correct import correct

SUCCESS, WRONG_TOKEN, NOT_REGISTERED = None, Answer.WRONG_TOKEN, Answer.NOT_REGISTERED
INTERNAL = Answer.INTERNAL_ERROR
ANSWERED = [EventKind.RECEIVED, EventKind.OPENED, EventKind.ANSWERED]
REFUSED = [EventKind.RECEIVED, EventKind.OPENED, EventKind.REFUSED]
LATER = context(DISPATCH, now=NOW + 1)


def repeat_limit(number):
    return Limit(REPEATS, 3, MINUTE, entry(number).hash)


def test_copies_are_answered_alike_and_pushed_once():
    request = push_request(item(), WRONG_ITEM, FILTERED_ITEM)
    first, second = decide_requests(request, request)
    assert request_answers(first) == request_answers(second) == [SUCCESS, WRONG_TOKEN, SUCCESS]
    assert (admitted_keys(first), admitted_keys(second)) == (delivery_keys(item()), [])
    assert second.effect == replace(first.effect, admissions=())  # so a post that fails corrects both
    assert (second.replies, second.delivery_keys) == (first.replies, first.delivery_keys)
    assert (kinds(second), failures(second)) == (ANSWERED, [Failure.WRONG_TOKEN])


@pytest.mark.parametrize("too_many", [False, True])
def test_copies_in_one_task_are_limited_as_repeats(too_many):
    request = push_request(item(), too_many=too_many)
    outcomes = decide_requests(request, request, request, verdicts=hold_back(repeat_limit(3)))
    assert [len(outcome.replies) for outcome in outcomes] == [1, 1, 0]
    assert (kinds(outcomes[2]), failures(outcomes[2])) == (REFUSED, [Failure.REPEATED_TOO_OFTEN])


def test_each_sender_of_unsigned_copies_is_answered():
    outcomes = decide_requests(push_request(item()), push_request(item(), sender=CAROL), push_request(item()))
    assert [outcome.replies[0].recipient for outcome in outcomes] == [user.public_key for user in (BOB, CAROL, BOB)]
    assert [len(outcome.effect.admissions) for outcome in outcomes] == [1, 0, 0]


def test_requests_with_the_same_notification_push_once():
    first, second = decide_requests(
        push_request(item(), message_id=b"same"), push_request(item(), WRONG_ITEM, message_id=b"same", number=2)
    )
    assert (len(first.effect.admissions), len(second.effect.admissions)) == (1, 0)
    assert request_answers(second) == [SUCCESS, WRONG_TOKEN]
    assert second.effect.delivery_keys == (*first.effect.delivery_keys, None)


def remembered(*succeeded):
    return {push_request().message_id: RememberedRequest(succeeded)}


def test_only_items_that_failed_are_tried_again():
    request = push_request(item(), item(device=TABLET), WRONG_ITEM, item(CAROL))
    [outcome] = decide_requests(request, admitted=remembered(True, False, False, True))
    assert request_answers(outcome) == [SUCCESS, SUCCESS, WRONG_TOKEN, SUCCESS]
    assert admitted_keys(outcome) == delivery_keys(item(device=TABLET))
    pushed, again, late = delivery_keys(item(), item(device=TABLET), item(CAROL))
    assert outcome.effect.delivery_keys == (pushed, again, None, late)
    assert kinds(outcome) == [*REFUSED, EventKind.ANSWERED]
    assert failures(outcome) == [Failure.WRONG_TOKEN] * 2


def test_a_repeat_above_the_limit_is_silent():
    """The next one is decided as if it had not come."""
    requests = push_request(item()), push_request(item()), push_request(item(), number=2)
    outcomes = decide_requests(*requests, admitted=remembered(False))
    assert [len(outcome.effect.admissions) for outcome in outcomes] == [1, 0, 1]
    silent, *others = decide_requests(*requests, admitted=remembered(False), verdicts=hold_back(repeat_limit(1)))
    assert (kinds(silent), failures(silent)) == (REFUSED, [Failure.REPEATED_TOO_OFTEN])
    assert silent == Outcome(entry=entry(1), events=silent.events)
    assert [len(outcome.effect.admissions) for outcome in others] == [1, 1]


def test_corrections_report_deliveries_that_failed():
    [outcome] = decide_requests(push_request(item(), WRONG_ITEM, item(device=TABLET), item()))
    failed = {delivery_keys(item())[0]: Failure.TOKEN_UNREGISTERED, b"another": Failure.PAYLOAD_TOO_LARGE}
    correction = correct(outcome, failed, LATER)
    assert request_answers(correction) == [NOT_REGISTERED, WRONG_TOKEN, SUCCESS, NOT_REGISTERED]
    assert correction.replies[0].recipient == BOB.public_key
    assert correct(correction, {}, LATER) is None
    failures = (Failure.TOKEN_UNREGISTERED, Failure.WRONG_TOKEN, None, Failure.TOKEN_UNREGISTERED)
    answered = message_event(LATER.task, entry(1), EventKind.ANSWERED, NOW + 1, failure=Failure.TOKEN_UNREGISTERED)
    assert correction == Outcome(
        entry=entry(1),
        events=(answered,),
        replies=correction.replies,
        effect=replace(outcome.effect, failures=failures, is_correction=True),
    )


@pytest.mark.parametrize("failed", [{}, {b"another": Failure.TOKEN_UNREGISTERED}])
def test_true_answers_are_not_corrected(failed):
    answered, empty, silent = decide_requests(
        push_request(item(), WRONG_ITEM),
        push_request(number=2),
        push_request(item()),
        verdicts=hold_back(repeat_limit(3)),
    )
    assert not silent.replies
    assert [correct(outcome, failed, LATER) for outcome in (answered, empty, silent)] == [None] * 3


def test_answers_to_both_copies_are_corrected():
    outcomes = decide_requests(
        push_request(item()),
        push_request(item(), sender=CAROL),
        push_request(item(), number=2),
        push_request(WRONG_ITEM, number=3),
    )
    failed = {delivery_keys(item())[0]: Failure.TOKEN_REJECTED}
    first, second, *others = (correct(outcome, failed, LATER) for outcome in outcomes)
    assert others == [None, None]
    assert [request_answers(correction) for correction in (first, second)] == [[INTERNAL]] * 2
    assert [correction.replies[0].recipient for correction in (first, second)] == [BOB.public_key, CAROL.public_key]
