"""Which messages are handled at once: those for a device that a push once reached, and those that cost little."""

from dataclasses import replace

import pytest

from support.deciding import (
    ALICE,
    ALLOW,
    BOB,
    CAROL,
    FILTERED_ITEM,
    LOST_ITEM,
    NOW,
    TABLET,
    WRONG_ITEM,
    Device,
    context,
    entry,
    hold_back,
    installation,
    item,
    messages,
    push_request,
    query,
    registration_message,
    request_facts,
    stored_installations,
)
from wakupush.model.deliveries import RememberedRequest
from wakupush.model.limits import DEVICE_PUSHES, USER_QUERIES
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.model.registrations import AnswerSizes
from wakupush.server.push import charge as of_requests
from wakupush.server.query import charge as of_queries
from wakupush.server.registration import charge as of_registrations

#: Alice's phone had a push, her tablet and Bob's phone did not.
DEVICES = {installation(ALICE): Device(proven=True), installation(ALICE, TABLET): Device(), installation(BOB): Device()}
TO_TABLET = item(device=TABLET)


def numbers(hashes):
    """Return the numbers of envelopes."""
    return sorted(number for number in range(1, 9) if entry(number).hash in hashes)


def express_requests(*requests, seen=NOW - 3, devices=DEVICES, **rows):
    facts = request_facts(*requests, devices=devices, **rows)
    return numbers(of_requests.express(messages(*requests, seen=seen), facts, context(DISPATCH)))


@pytest.mark.parametrize(
    ("items", "at_once"),
    [
        ([item()], True),
        ([TO_TABLET, item()], True),
        ([TO_TABLET], False),
        ([WRONG_ITEM], False),
        ([LOST_ITEM], False),
        ([item(BOB)], False),
    ],
)
def test_requests_for_a_proven_device_are_express(items, at_once):
    assert express_requests(push_request(*items)) == [1] * at_once


@pytest.mark.parametrize(("device", "at_once"), [(Device(proven=True), True), (Device(), False)])
def test_the_wishes_of_a_receiver_do_not_decide_the_class(device, at_once):
    wishes = [{}, {"enabled": False}, {"block_mentions": True}, {"blocked_chat_list": (b"chat", b"author")}]
    wishes.append({"muted_chat_list": (b"chat",)})
    classes = [
        express_requests(push_request(FILTERED_ITEM), devices={installation(ALICE): replace(device, preferences=each)})
        for each in wishes
    ]
    assert classes == [[1] * at_once] * len(wishes)


def test_only_the_first_envelope_of_a_request_is_express():
    request = push_request(item())
    assert express_requests(request, request, push_request(item(), number=2)) == [1, 3]
    admitted = {request.message_id: RememberedRequest(succeeded=[True], week=None)}
    assert express_requests(request, admitted=admitted) == []


def test_requests_that_nobody_answers_are_express():
    request = push_request(LOST_ITEM)
    assert express_requests(request, over={request.message_id}) == [1]
    assert express_requests(request, seen=NOW - 3600) == [1]


def test_requests_above_device_limits_are_not_express():
    requests = push_request(item(), TO_TABLET), push_request(item(), number=2), push_request(TO_TABLET, number=3)
    facts = request_facts(*requests, devices=DEVICES)
    batch = messages(*requests)
    limits = [limit for limit in of_requests.charge(batch, facts, context(DISPATCH)) if limit.name == DEVICE_PUSHES]
    for limit, above in ((limits[0], [1]), (limits[1], []), (limits[2], [2])):
        assert numbers(of_requests.exceeds(batch, facts, hold_back(limit))) == above
    assert numbers(of_requests.exceeds(batch, facts, ALLOW)) == []


def test_too_frequent_queries_are_not_express():
    sizes = AnswerSizes({each.public_key.key_hash: 300 for each in (ALICE, BOB)}, {ALICE.public_key.key_hash})
    queries = messages(query(ALICE, BOB), query(BOB))
    assert USER_QUERIES not in {limit.name for limit in of_queries.charge(queries, sizes, context(QUERY))}
    limits = list(of_queries.charge(queries, sizes, context(QUERY, divides=True)))
    [limit] = [limit for limit in limits if limit.name == USER_QUERIES]
    assert (limit.most, limit.message, limit.position) == (of_queries.EXPRESS_QUERIES, entry(1).hash, 0)
    assert numbers(of_queries.exceeds(queries, sizes, hold_back(limit))) == [1]
    assert numbers(of_queries.exceeds(queries, sizes, ALLOW)) == []


def test_queries_for_proven_users_are_express():
    sizes = AnswerSizes({each.public_key.key_hash: 300 for each in (ALICE, BOB)}, {ALICE.public_key.key_hash})
    queries = messages(query(ALICE), query(BOB), query(BOB, ALICE), query(CAROL), query(CAROL, BOB))
    assert numbers(of_queries.express(queries, sizes, context(QUERY))) == [1, 3, 4]


def test_registrations_of_proven_users_are_express():
    registered = stored_installations(registration_message(), registration_message(user=BOB))
    installations = replace(registered, proven=frozenset({ALICE.public_key.key_hash}))
    batch = messages(registration_message(2), registration_message(1, device=TABLET), registration_message(2, user=BOB))
    assert numbers(of_registrations.express(batch, installations, context(REGISTRATION))) == [1, 2]
