"""Charging and deciding are pure, and a task decides its messages as if they came one after the other."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from support.deciding import (
    ALICE,
    ALLOW,
    BOB,
    CAROL,
    IDENTITY,
    NOTHING_STORED,
    PHONE,
    TABLET,
    CountingLimiter,
    context,
    entry,
    hold_back,
    installation,
    item,
    messages,
    push_request,
    registration_message,
    request_facts,
    unregistration_message,
)
from wakupush.model.deliveries import RememberedRequest
from wakupush.model.failures import Failure
from wakupush.model.limits import DEVICE_PUSHES, FIRST_REGISTRATIONS, REPEATS
from wakupush.model.notifications import NotificationType
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.server.engine.limits import TaskLimits
from wakupush.server.push.kind import PUSH_REQUESTS
from wakupush.server.registration.kind import REGISTRATIONS
from wakupush.server.registration.read import RefusedRegistration

charge_registrations, decide_registrations = REGISTRATIONS.charge, REGISTRATIONS.decide
charge_requests, decide_requests = PUSH_REQUESTS.charge, PUSH_REQUESTS.decide


def draw_verdicts(draw, limits):
    """Return verdicts that hold back some of these limits, and whatever comes after them."""
    limits = list(limits)
    held_back = draw(st.sets(st.sampled_from(limits))) if limits else set()
    return hold_back(*(limit for limit in limits if {limit, limit.after} & held_back))


# Registrations.

users, devices = st.sampled_from([ALICE, BOB]), st.sampled_from([PHONE, TABLET])
registrations = st.one_of(
    st.builds(
        registration_message,
        st.integers(0, 4),
        user=users,
        device=devices,
        nonce=st.sampled_from(["", "again"]),
    ),
    st.builds(unregistration_message, st.integers(1, 4), user=users, device=devices),
    st.sampled_from([Failure.INNER_MALFORMED, Failure.REGISTRATION_MALFORMED]).map(
        lambda failure: RefusedRegistration(ALICE.public_key, IDENTITY.public_key, bytes(64), failure)
    ),
)
#: Their version makes them plausible, their grant is not the user's.
with_wrong_grants = st.builds(
    registration_message, st.integers(1, 4), user=users, device=devices, grant=st.just(bytes(65))
)
batches = st.lists(registrations, max_size=12).map(lambda contents: messages(*contents))
dubious_batches = st.lists(registrations | with_wrong_grants, max_size=12).map(lambda contents: messages(*contents))
FULL = context(REGISTRATION, limits={"installations_per_key": 1})
LIMITED = context(REGISTRATION, limits={"first_registrations_per_hour": 2})


def store(installations, outcomes):
    """Return what is stored after outcomes."""
    after = installations.copy()
    for outcome in outcomes:
        if outcome.effect is not None and (change := outcome.effect.change) is not None:
            after.take(change.installation, change.row)
    return after


@st.composite
def installations(draw, task_context):
    """Return what is stored on a server that some registered with."""
    return store(NOTHING_STORED, decide_registrations(draw(batches), NOTHING_STORED, ALLOW, task_context))


@given(st.data(), installations(FULL), dubious_batches)
def test_registrations_are_decided_purely(data, installations, batch):
    before = installations.copy()
    limits = list(charge_registrations(batch, installations, FULL))
    assert list(charge_registrations(batch, installations, FULL)) == limits
    verdicts = draw_verdicts(data.draw, limits)
    outcomes = decide_registrations(batch, installations, verdicts, FULL)
    assert decide_registrations(batch, installations, verdicts, FULL) == outcomes
    assert installations == before
    assert [outcome.entry for outcome in outcomes] == [message.entry for message in batch]


@given(installations(FULL), batches)
def test_registrations_are_decided_one_by_one(installations, batch):
    together, alone = decide_registrations(batch, installations, ALLOW, FULL), []
    for message in batch:
        alone += decide_registrations([message], installations, ALLOW, FULL)
        installations = store(installations, alone[-1:])
    assert together == alone


@given(
    installations(LIMITED),
    batches,
    st.sets(st.tuples(users, devices).map(lambda pair: installation(*pair))),
    st.sets(st.integers(1, 12)),
)
def test_registrations_are_held_back_one_by_one(installations, batch, new, numbers):
    """First registrations by their installation, repeats by their envelope."""
    repeated = {entry(number).hash for number in numbers}
    first = {message.entry.hash for message in batch if getattr(message.content, "installation", None) in new}

    def decide_held_back(part):
        limits = charge_registrations(part, installations, LIMITED)
        held_back = [limit for limit in limits if limit.message in (repeated if limit.name == REPEATS else first)]
        return decide_registrations(part, installations, hold_back(*held_back), LIMITED)

    together, alone = decide_held_back(batch), []
    for message in batch:
        alone += decide_held_back([message])
        installations = store(installations, alone[-1:])
    assert together == alone


def run(batch, installations, limits):
    """Return the outcomes of registrations, as a task decides on them."""
    verdicts = limits.ask(charge_registrations(batch, installations, LIMITED))
    return decide_registrations(batch, installations, verdicts, LIMITED)


@given(installations(LIMITED), batches)
def test_registrations_are_limited_as_if_one_by_one(installations, batch):
    limiter, one_by_one, alone = CountingLimiter(), CountingLimiter(), []
    limits = TaskLimits(limiter)
    together = run(batch, installations, limits)
    assert run(batch, installations, limits) == together  # the transaction is repeated
    requested_limits, nothing = limiter.calls
    assert (len(requested_limits), nothing) == (len({limit.id for limit in requested_limits}), [])
    for message in batch:
        alone += run([message], installations, TaskLimits(one_by_one))
        installations = store(installations, alone[-1:])
    assert together == alone
    requested_limits_alone = [limit for limits in one_by_one.calls for limit in limits]
    names, names_alone = (Counter(limit.name for limit in each) for each in (requested_limits, requested_limits_alone))
    assert names[FIRST_REGISTRATIONS] <= names_alone[FIRST_REGISTRATIONS]


@given(st.data(), installations(FULL), dubious_batches)
def test_only_counted_installations_are_stored(data, installations, batch):
    """Neither an installation whose first registration is held back, nor one that was not counted."""
    limits = list(charge_registrations(batch, installations, FULL))
    verdicts = draw_verdicts(data.draw, limits)
    let_through = {
        message.content.installation
        for message in batch
        for limit in limits
        if limit.after and limit.message == message.entry.hash and limit.id not in verdicts.held_back
    }
    outcomes = decide_registrations(batch, installations, verdicts, FULL)
    new = store(installations, outcomes).stored.keys() - installations.stored.keys()
    assert new <= let_through


# Push requests.

items = st.builds(
    item,
    st.sampled_from([ALICE, ALICE, CAROL]),
    devices,
    access_token=st.sampled_from([item().access_token, item().access_token, "wrong"]),
    type=st.sampled_from([NotificationType.MESSAGE, NotificationType.MENTION, 99]),
    message=st.sampled_from([b"1", b"2"]),
)
item_lists = st.lists(items, max_size=3)
TASK = context(DISPATCH)


@st.composite
def requests(draw):
    """Return a few requests in several envelopes, and what is stored: some of them came before."""
    few = [
        push_request(*draw(item_lists), number=number, message_id=draw(st.sampled_from([b"id", b"other"])))
        for number in range(1, 4)
    ]
    few.append(push_request(*draw(item_lists), number=4, too_many=True))
    admitted = {
        request.message_id: RememberedRequest(
            draw(st.lists(st.booleans(), min_size=len(request.addresses), max_size=len(request.addresses)))
        )
        for request in draw(st.sets(st.sampled_from(few[:3]), max_size=2))
    }
    contents = draw(st.lists(st.tuples(st.sampled_from(few), st.sampled_from([BOB, CAROL])), max_size=8))
    batch = messages(*(replace(content, sender=sender.public_key) for content, sender in contents))
    return batch, request_facts(*few, admitted=admitted)


def remember(facts, outcome):
    """Return what is stored after an outcome: a later envelope of the request is answered by it."""
    succeeded = [failure is None for failure in outcome.effect.failures]
    if not any(succeeded):
        return facts
    return replace(facts, admitted={**facts.admitted, outcome.effect.opened.message_id: RememberedRequest(succeeded)})


@given(st.data(), requests())
def test_requests_are_decided_purely(data, batch_and_facts):
    batch, facts = batch_and_facts
    before = replace(facts, admitted=dict(facts.admitted), receivers=dict(facts.receivers))
    limits = list(charge_requests(batch, facts, TASK))
    assert list(charge_requests(batch, facts, TASK)) == limits
    verdicts = draw_verdicts(data.draw, limits)
    outcomes = decide_requests(batch, facts, verdicts, TASK)
    assert decide_requests(batch, facts, verdicts, TASK) == outcomes
    assert facts == before


@given(requests())
def test_requests_are_decided_one_by_one(batch_and_facts):
    batch, facts = batch_and_facts
    together, pushed_keys, message_ids = decide_requests(batch, facts, ALLOW, TASK), set(), set()
    for message, outcome in zip(batch, together, strict=True):
        [alone] = decide_requests([message], facts, ALLOW, TASK)
        facts = remember(facts, alone)
        assert outcome.replies == alone.replies
        assert outcome.effect.failures == alone.effect.failures
        # The database takes each delivery once.
        new = [each for each in alone.effect.admissions if each.delivery.delivery_key not in pushed_keys]
        assert list(outcome.effect.admissions) == new
        pushed_keys |= {admission.delivery.delivery_key for admission in new}
        # A copy has no events for its items.
        is_copy = message.content.message_id in message_ids
        assert outcome.events == (alone.events[-1:] if is_copy else alone.events)
        message_ids.add(message.content.message_id)


@given(st.data(), requests())
def test_success_is_pushed_or_filtered(data, batch_and_facts):
    batch, facts = batch_and_facts
    verdicts = draw_verdicts(data.draw, charge_requests(batch, facts, TASK))
    answered = [
        outcome.effect for outcome in decide_requests(batch, facts, verdicts, TASK) if outcome.effect is not None
    ]
    pushes = Counter(admission.delivery.delivery_key for request in answered for admission in request.admissions)
    assert set(pushes.values()) <= {1}
    reported = {
        (bool(request.before and request.before.succeeded[position]), key)
        for request in answered
        for position, key in enumerate(request.delivery_keys)
        if key
    }
    assert {key for succeeded_before, key in reported if not succeeded_before} == set(pushes)
    for request in answered:
        assert not [pair for pair in zip(request.failures, request.delivery_keys, strict=True) if all(pair)]


@given(st.data(), requests())
def test_only_counted_items_are_pushed_whole(data, batch_and_facts):
    batch, facts = batch_and_facts
    limits = list(charge_requests(batch, facts, TASK))
    verdicts = draw_verdicts(data.draw, limits)
    let_through = {limit.id for limit in limits} - verdicts.held_back
    for outcome in decide_requests(batch, facts, verdicts, TASK):
        for admission in outcome.effect.admissions if outcome.effect else ():
            delivery = admission.delivery
            assert not delivery.message or any(
                key == delivery.delivery_key and (DEVICE_PUSHES, outcome.entry.hash, position) in let_through
                for position, key in enumerate(outcome.effect.delivery_keys)
            )
