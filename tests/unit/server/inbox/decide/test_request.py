"""Deciding on push requests: who is notified, once, and what the sender is told."""

from dataclasses import replace
from uuid import UUID

import pytest

from support.asking import AUTHOR, CHAT, address, asking, item, known, receiver, target
from support.deciding import (
    ALICE,
    ALLOW,
    BOB,
    CAROL,
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
from wakupush.model.limits import DEVICE_PUSHES, MINUTE, REPEATS, Limit, Verdicts
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.protocol.application import Type
from wakupush.protocol.notification import MOST_DATA_BYTES, data
from wakupush.protocol.request import Filtered, delivery_key, parse_response
from wakupush.server.inbox.content import Message, Part, RefusedContent
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
    told = together([*outcome.events, *(admission.event for admission in outcome.admissions)])
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
    whole = {"key_hash": asked.key_hash, "installation_id": PHONE, "chat_id": CHAT}
    dialect = facts.settings.gorush.dialect
    assert data(dialect, **whole, message=stored.message) == data(dialect, **whole, message=asked.message)


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
    assert REPEATS not in {limit.name for limit in first.limits}
    assert second.limits == (repeats(asked, 2),)


def test_copies_of_a_request_in_one_task_are_repeats_and_limited_as_such():
    asked = asking(item())
    verdicts = Verdicts({repeats(asked, 2): True, repeats(asked, 3): False})
    outcomes = decide(messages(asked, asked, asked), known(), verdicts)
    assert [outcome.reply is None for outcome in outcomes] == [False, False, True]
    assert told(outcomes[2]) == ["received", "opened", "refused: repeated_too_often"]


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
    assert outcome.limits[0] == repeats(asked, 1)


def test_a_repeat_too_many_is_met_by_silence_and_its_twin_has_a_limit_of_its_own():
    asked = messages(asking(item()), asking(item()), asking(item(), number=2))
    facts = before(False, repeats_per_minute=7)
    outcomes = decide(asked, facts, ALLOW)
    limits = [repeats(asking(), number, 7) for number in (1, 2)]
    assert [outcome.limits for outcome in outcomes] == [
        (limits[0], charge(1)),
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


# The budget of a device.


def charge(number, position=0, device=PHONE, most=60):
    """Return what a notification of an envelope for one of Alice's devices is charged to."""
    platform = {PHONE: Platform.IOS, TABLET: Platform.ANDROID}[device]
    digest = IDENTITY.device_digest(target(platform))
    return Limit(DEVICE_PUSHES, most, MINUTE, entry(number).hash, position, digest.hex())


def test_a_device_is_charged_for_whoever_has_its_token_whatever_its_user_filters():
    """Or an error, or the budget that is left, would tell of the filter."""
    items = [item(), WRONG, item(type=MENTION), item(device=TABLET), item(), TO_NOBODY, item(type=99)]
    [outcome] = decide(messages(asking(*items)), known(limits={"pushes_per_device_per_minute": 4}), ALLOW)
    charged = ((0, PHONE), (2, PHONE), (3, TABLET), (4, PHONE))
    assert outcome.limits == tuple(charge(1, position, device, 4) for position, device in charged)
    assert reports(outcome) == [SUCCESS, WRONG_TOKEN, SUCCESS, SUCCESS, SUCCESS, NOT_REGISTERED, INTERNAL]
    dead = known(receivers={installation(ALICE): receiver(token_died=True, enabled=False)})
    [outcome] = decide(messages(asking(item())), dead, ALLOW)
    assert (outcome.limits, reports(outcome)) == ((), [NOT_REGISTERED])


def test_a_device_has_one_budget_under_whichever_keys_it_is_registered():
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


def test_beyond_its_budget_a_device_is_pushed_once_a_minute_without_content_and_all_is_success():
    both = {installation(user): receiver() for user in (ALICE, BOB)} | {installation(ALICE, TABLET): receiver()}
    asked = messages(asking(item(), item(message=b"2")), asking(item(BOB), number=2), asking(item(), number=3))
    outcomes = over_budget(asked, known(receivers=both))
    assert [reports(outcome) for outcome in outcomes] == [[SUCCESS] * 2, [SUCCESS], [SUCCESS]]
    [admission] = [admission for outcome in outcomes for admission in outcome.admissions]
    delivery = admission.delivery
    assert (delivery.chat_id, delivery.message, delivery.notification_type) == (b"", b"", NotificationType.MESSAGE)
    assert {key for outcome in outcomes for key in outcome.request.delivery_keys} == {delivery.delivery_key}
    assert told(outcomes[0]) == ["received", "opened", "answered"]


def test_the_notifications_without_content_of_a_device_collapse_and_those_of_another_do_not():
    def collapsed(device, now):
        [outcome] = over_budget(messages(asking(item(device=device))), known(now=now))
        [admission] = outcome.admissions
        return admission.delivery.delivery_key

    first, again, later = (collapsed(PHONE, now) for now in (120.0, 179.9, 180.0))
    assert first == again != later
    # iOS has the first half as collapse id, see `wakupush.server.delivery.attempt`.
    assert first[:16] == later[:16] != collapsed(TABLET, 120.0)[:16]


def test_beyond_its_budget_a_device_is_not_pushed_what_its_user_filters():
    [outcome] = over_budget(messages(asking(item(type=MENTION))), known())
    assert (outcome.admissions, reports(outcome)) == ((), [SUCCESS])


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
