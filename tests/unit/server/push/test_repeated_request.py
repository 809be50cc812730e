"""Deciding on push requests that come again, and on answers that turned out wrong."""

from dataclasses import replace

import pytest

from support.deciding import (
    ALLOW,
    BOB,
    CAROL,
    INTERNAL,
    MENTION,
    NOT_REGISTERED,
    NOW,
    SUCCESS,
    TABLET,
    WRONG,
    WRONG_TOKEN,
    asking,
    charge,
    entry,
    item,
    keys,
    known,
    messages,
    pushed,
    reports,
    told,
)
from wakupush.model.deliveries import RememberedRequest
from wakupush.model.events import EventKind, message_event
from wakupush.model.failures import Failure
from wakupush.model.limits import MINUTE, REPEATS, Limit, Verdicts
from wakupush.server.engine.message import RefusedContent
from wakupush.server.engine.outcome import Outcome
from wakupush.server.push.decide import corrected, decide


def test_twins_are_answered_alike_and_pushed_once():
    asked = asking(item(), WRONG, item(type=MENTION))
    first, second = decide(messages(asked, asked), known(), ALLOW)
    assert reports(first) == reports(second) == [SUCCESS, WRONG_TOKEN, SUCCESS]
    assert (pushed(first), pushed(second)) == (keys(item()), [])
    assert second.request == first.request  # so a post that fails corrects both
    assert second.reply == first.reply
    assert told(second) == ["received", "opened", "answered: wrong_token"]
    assert REPEATS not in {limit.name for limit in first.limits}
    assert second.limits == (repeats(asked, 2),)


def test_copies_in_one_task_are_limited_as_repeats():
    asked = asking(item())
    verdicts = Verdicts({repeats(asked, 2): True, repeats(asked, 3): False})
    outcomes = decide(messages(asked, asked, asked), known(), verdicts)
    assert [outcome.reply is None for outcome in outcomes] == [False, False, True]
    assert told(outcomes[2]) == ["received", "opened", "refused: repeated_too_often"]


def test_each_sender_of_an_unsigned_request_is_answered():
    outcomes = decide(messages(asking(item()), asking(item(), sender=CAROL), asking(item())), known(), ALLOW)
    assert [outcome.reply.recipient for outcome in outcomes] == [each.public_key for each in (BOB, CAROL, BOB)]
    assert [len(outcome.admissions) for outcome in outcomes] == [1, 0, 0]


def test_requests_with_the_same_notification_push_once():
    asked = [asking(item(), message_id=b"same"), asking(item(), WRONG, message_id=b"same", number=2)]
    first, second = decide(messages(*asked), known(), ALLOW)
    assert (len(first.admissions), len(second.admissions)) == (1, 0)
    assert reports(second) == [SUCCESS, WRONG_TOKEN]
    assert second.request.delivery_keys == (*first.request.delivery_keys, None)


def before(*succeeded):
    return known(admitted={asking().message_id: RememberedRequest(succeeded)})


def test_only_what_failed_before_is_tried_anew():
    asked = asking(item(), item(device=TABLET), WRONG, item(CAROL))
    [outcome] = decide(messages(asked), before(True, False, False, True), ALLOW)
    assert reports(outcome) == [SUCCESS, SUCCESS, WRONG_TOKEN, SUCCESS]
    assert pushed(outcome) == keys(item(device=TABLET))
    assert outcome.request.delivery_keys == (None, *keys(item(device=TABLET)), None, None)
    assert told(outcome) == ["received", "opened", "refused: wrong_token", "answered: wrong_token"]
    assert outcome.limits[0] == repeats(asked, 1)


def test_one_repeat_too_many_is_met_by_silence():
    asked = messages(asking(item()), asking(item()), asking(item(), number=2))
    facts = before(False)
    outcomes = decide(asked, facts, ALLOW)
    limits = [repeats(asking(), number) for number in (1, 2)]
    assert [outcome.limits for outcome in outcomes] == [
        (limits[0], charge(1, after=limits[0])),
        (limits[1],),
        (charge(3),),
    ]
    assert [len(outcome.admissions) for outcome in outcomes] == [1, 0, 1]
    outcomes = decide(asked, facts, Verdicts({limits[0]: False, limits[1]: True}))
    assert told(outcomes[0]) == ["received", "opened", "refused: repeated_too_often"]
    assert outcomes[0] == Outcome(entry=entry(1), events=outcomes[0].events, limits=(limits[0],))
    assert [len(outcome.admissions) for outcome in outcomes] == [0, 1, 1]


def repeats(asked, number, most=3):
    return Limit(REPEATS, most, MINUTE, entry(number).hash, key=asked.message_id.hex())


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


def test_both_answers_to_twins_are_corrected():
    asked = [asking(item()), asking(item(), sender=CAROL), asking(item(), number=2), asking(WRONG, number=3)]
    outcomes = decide(messages(*asked), known(), ALLOW)
    failed = {keys(item())[0]: Failure.TOKEN_REJECTED}
    corrections = [corrected(known().task, outcome, failed, NOW) for outcome in outcomes]
    assert [each and reports(each) for each in corrections] == [[INTERNAL], [INTERNAL], None, None]
    assert [each.reply.recipient for each in corrections[:2]] == [BOB.public_key, CAROL.public_key]
