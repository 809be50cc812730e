"""Decisions are pure, and a batch is decided as its messages are, one after the other."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from wakupush.server.engine.decide import registration, request

from support.deciding import (
    ALICE,
    ALLOW,
    BOB,
    CAROL,
    PHONE,
    TABLET,
    asking,
    entry,
    facts,
    item,
    known,
    messages,
    registering,
    unregistering,
)
from wakupush.model.deliveries import RememberedRequest
from wakupush.model.failures import Failure
from wakupush.model.limits import FIRST_REGISTRATIONS, Verdicts
from wakupush.model.notifications import NotificationType
from wakupush.model.queues import REGISTRATION
from wakupush.model.registrations import Registration, Stored
from wakupush.server.engine.message import RefusedContent
from wakupush.server.engine.run import _decide, _Limits


class Only(Verdicts):
    """Verdicts by the envelope, whatever is asked."""

    __slots__ = ("denied",)

    def __init__(self, denied):
        super().__init__()
        object.__setattr__(self, "denied", denied)

    def allow(self, limit):
        return limit.message not in self.denied


class Counting:
    """A limiter that counts in memory."""

    def __init__(self):
        self.counts, self.asked = Counter(), []

    def ask(self, wanted):
        self.asked += wanted
        verdicts = {}
        for limit in wanted:
            self.counts[limit.name, limit.key] += 1
            verdicts[limit] = self.counts[limit.name, limit.key] <= limit.most
        return verdicts


denials = st.sets(st.integers(1, 12)).map(lambda numbers: Only({entry(number).hash for number in numbers}))


def test_the_verdicts_of_a_test_deny_by_the_envelope():
    [outcome] = registration.decide(messages(registering(1)), facts(REGISTRATION), Only({entry(1).hash}))
    assert outcome.change is None


# Registrations.

registrations = st.one_of(
    st.builds(
        registering,
        st.integers(0, 4),
        user=st.sampled_from([ALICE, BOB]),
        device=st.sampled_from([PHONE, TABLET]),
        nonce=st.sampled_from(["", "anew"]),
    ),
    st.builds(
        unregistering, st.integers(1, 4), user=st.sampled_from([ALICE, BOB]), device=st.sampled_from([PHONE, TABLET])
    ),
    st.sampled_from([Failure.INNER_MALFORMED, Failure.REGISTRATION_MALFORMED]).map(
        lambda failure: RefusedContent(ALICE.public_key, failure, bytes(64))
    ),
)
batches = st.lists(registrations, max_size=12).map(lambda contents: messages(*contents))


def with_stored(before, stored):
    """Return facts with these rows; what a key has is counted anew."""
    counts = Counter(each.key_hash for each, state in stored.items() if state.registered)
    return replace(before, stored=stored, counts=dict(counts))


def advance(before, outcome):
    """Return the facts after an outcome."""
    if outcome.change is None:
        return before
    registered = isinstance(outcome.change.registration, Registration)
    row = Stored(outcome.change.registration.version, outcome.change.request_digest, registered)
    return with_stored(before, {**before.stored, outcome.change.installation: row})


@st.composite
def worlds(draw, **limits):
    """Return facts of a server that some have registered with."""
    world = facts(REGISTRATION, limits=limits)
    for outcome in registration.decide(draw(batches), facts(REGISTRATION), ALLOW):
        world = advance(world, outcome)
    return world


crowded = worlds(installations_per_key=1)


@given(crowded, batches, denials)
def test_deciding_registrations_is_pure(world, batch, verdicts):
    stored, counts = dict(world.stored), dict(world.counts)
    first = registration.decide(batch, world, verdicts)
    assert registration.decide(batch, world, verdicts) == first
    assert (world.stored, world.counts) == (stored, counts)


@given(crowded, batches, denials)
def test_a_batch_of_registrations_is_decided_one_by_one(world, batch, verdicts):
    together, alone = registration.decide(batch, world, verdicts), []
    for message in batch:
        [outcome] = registration.decide([message], world, verdicts)
        world = advance(world, outcome)
        alone.append(outcome)
    assert together == alone


@given(worlds(first_registrations_per_hour=2), batches)
def test_limits_are_asked_once_as_if_one_by_one(world, batch):
    limiter, one_by_one, alone = Counting(), Counting(), []
    limits = _Limits(limiter)
    together = _decide(batch, world, limits)
    assert len(limiter.asked) == len(set(limiter.asked))
    assert _decide(batch, world, limits) == together  # the transaction is repeated
    assert len(limiter.asked) == len(limits.verdicts)
    for message in batch:
        [outcome] = _decide([message], world, _Limits(one_by_one))
        world = advance(world, outcome)
        alone.append(outcome)
    assert together == alone
    firsts = Counter(limit.name for limit in limiter.asked)[FIRST_REGISTRATIONS]
    assert firsts <= Counter(limit.name for limit in one_by_one.asked)[FIRST_REGISTRATIONS]


# Push requests.

items = st.builds(
    item,
    st.sampled_from([ALICE, ALICE, CAROL]),
    st.sampled_from([PHONE, TABLET]),
    access_token=st.sampled_from([item().access_token, item().access_token, "wrong"]),
    type=st.sampled_from([NotificationType.MESSAGE, NotificationType.MENTION, 99]),
    message=st.sampled_from([b"1", b"2"]),
)


@st.composite
def requests(draw, **limits):
    """Return facts, and messages that hold a few requests in several envelopes; some of these came before."""
    few = [
        asking(*draw(st.lists(items, max_size=3)), number=number, message_id=draw(st.sampled_from([b"id", b"other"])))
        for number in range(1, 4)
    ]
    few.append(asking(*draw(st.lists(items, max_size=3)), number=4, too_many=True))
    admitted = {
        each.message_id: RememberedRequest(
            draw(st.lists(st.booleans(), min_size=len(each.addresses), max_size=len(each.addresses)))
        )
        for each in draw(st.sets(st.sampled_from(few[:3]), max_size=2))
    }
    contents = draw(st.lists(st.tuples(st.sampled_from(few), st.sampled_from([BOB, CAROL])), max_size=8))
    batch = messages(*(replace(content, sender=sender.public_key) for content, sender in contents))
    return known(admitted=admitted, limits=limits), batch


limited = requests(pushes_per_device_per_minute=1)


def admit(before, outcome):
    """Return the facts after an outcome: what a later envelope of a request is told."""
    succeeded = [failure is None for failure in outcome.request.failures]
    if not any(succeeded):
        return before
    return replace(before, admitted={**before.admitted, outcome.request.message_id: RememberedRequest(succeeded)})


@given(limited, denials)
def test_deciding_requests_is_pure(drawn, verdicts):
    world, batch = drawn
    admitted, receivers = {**world.admitted}, {**world.receivers.devices}
    first = request.decide(batch, world, verdicts)
    assert request.decide(batch, world, verdicts) == first
    assert (world.admitted, world.receivers.devices) == (admitted, receivers)


@given(requests())
def test_a_batch_of_requests_is_decided_one_by_one(drawn):
    world, batch = drawn
    together, taken, seen = request.decide(batch, world, ALLOW), set(), set()
    for message, outcome in zip(batch, together, strict=True):
        [alone] = request.decide([message], world, ALLOW)
        world = admit(world, alone)
        assert outcome.reply == alone.reply
        assert outcome.request.failures == alone.request.failures
        # The database takes each delivery once.
        new = [each for each in alone.admissions if each.delivery.delivery_key not in taken]
        assert list(outcome.admissions) == new
        taken |= {each.delivery.delivery_key for each in new}
        # Of a twin the items are not told of again.
        twin = message.content.message_id in seen
        assert outcome.events == (alone.events[-1:] if twin else alone.events)
        seen.add(message.content.message_id)


@given(limited, denials)
def test_success_is_pushed_or_filtered(drawn, verdicts):
    world, batch = drawn
    outcomes = request.decide(batch, world, verdicts)
    pushed = Counter(each.delivery.delivery_key for outcome in outcomes for each in outcome.admissions)
    assert set(pushed.values()) <= {1}
    told = [outcome.request for outcome in outcomes if outcome.request]
    assert {key for each in told for key in each.delivery_keys if key} == set(pushed)
    assert not [each for each in told for pair in zip(each.failures, each.delivery_keys, strict=True) if all(pair)]
