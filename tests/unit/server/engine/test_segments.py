"""Putting messages in segments together: which part completes, what is left of the others, and what it says."""

import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.deciding import ALICE, BOB, IDENTITY, entry, registering
from wakupush.model.failures import Failure
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.protocol import application, segments
from wakupush.protocol.application import Type
from wakupush.protocol.hashing import keccak256
from wakupush.protocol.query import encode_query
from wakupush.protocol.registration import request_id, seal_registration
from wakupush.protocol.sealing import SEAL_BYTES
from wakupush.protocol.segments import Segment
from wakupush.server.engine.message import Elsewhere, Message, OpenedQuery, OpenedRegistration, Part, RefusedContent
from wakupush.server.engine.open import Reader
from wakupush.server.engine.segments import _complete, joined

INNER = seal_registration(registering(1).message, ALICE, IDENTITY.public_key)
REGISTERING = application.wrap(Type.PUSH_NOTIFICATION_REGISTRATION, INNER, ALICE)
ASKING = application.wrap(Type.PUSH_NOTIFICATION_QUERY, encode_query([bytes(64)]), BOB)


def split(data=REGISTERING, count=3, *, signer=ALICE, on_query_topic=False):
    """Return a message in so many parts, as its envelopes hold them."""
    parts = [segments.parse(each) for each in segments.split(data, -(-len(data) // count))]
    assert len(parts) == count
    return [Part(part, signer and signer.public_key, on_query_topic) for part in parts]


def join(parts, stored=None, *, queue=REGISTRATION):
    """Return what becomes of parts that come one after the other."""
    sent = [Message(entry(number), part) for number, part in enumerate(parts)]
    found = joined(sent, stored or {}, Reader(queue, IDENTITY))
    assert [message.entry for message in found] == [message.entry for message in sent]
    return found


def kinds(found):
    return [each.content if isinstance(each.content, Failure) else type(each.content) for each in found]


def kept(*parts):
    """Return what the database has of a message."""
    return {parts[0].name: {part.segment.index: part.segment.payload for part in parts}}


def altered(part, payload):
    segment = part.segment
    return Part(Segment(segment.entire_message_hash, segment.index, segment.count, payload), part.transport_signer)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_last_part_to_come_completes_in_any_order(order):
    parts = [split()[position] for position in order]
    found = join(parts)
    assert kinds(found) == [Part, Part, OpenedRegistration]
    assert [message.content for message in found[:2]] == parts[:2]
    assert [message.last_part for message in found] == [None, None, parts[2]]
    assert (found[2].content.client, found[2].content.message) == (ALICE.public_key, registering(1).message)
    assert found[2].content.request_id == request_id(INNER)


@pytest.mark.parametrize("here", [[0], [1], [2], [0, 1], [0, 2], [1, 2]])
def test_parts_that_are_kept_count_with_those_that_come(here):
    parts = split()
    rest = [part for part in parts if part.segment.index not in here]
    found = join(rest, kept(*(parts[index] for index in here)))
    assert kinds(found) == [Part] * (len(rest) - 1) + [OpenedRegistration]


def test_a_message_of_one_part_is_whole():
    assert kinds(join(split(count=1))) == [OpenedRegistration]


def test_a_part_that_comes_twice_completes_nothing():
    first, second, third = split()
    assert kinds(join([first, first, second, second])) == [Part] * 4
    assert kinds(join([first, first, second, third])) == [Part] * 3 + [OpenedRegistration]
    assert kinds(join([second, second], kept(first))) == [Part] * 2


def test_a_part_that_is_kept_stands_against_another_in_its_place():
    first, second, third = split()
    wrong = altered(first, b"wrong")
    assert kinds(join([wrong, second, third], kept(first))) == [Part, Part, OpenedRegistration]
    assert kinds(join([first, wrong, second, third])) == [Part, Part, Part, OpenedRegistration]
    assert kinds(join([first, third], kept(wrong, second))) == [Part, Failure.PAYLOAD_MALFORMED]


def test_a_part_after_the_last_one_starts_anew():
    parts = split()
    found = join([*parts, parts[0], *parts[1:], parts[2]])
    assert kinds(found) == [Part, Part, OpenedRegistration] * 2 + [Part]
    assert kinds(join([parts[2], parts[0], parts[2]], kept(*parts[:2]))) == [OpenedRegistration, Part, Part]


def test_messages_come_together_each_by_itself():
    alice, bob = split(), split(signer=BOB)
    others = split(application.wrap(Type.PUSH_NOTIFICATION_REGISTRATION, INNER[:-1], ALICE))
    mixed = [part for triple in zip(alice, bob, others, strict=True) for part in triple]
    assert kinds(join(mixed)) == [Part] * 6 + [OpenedRegistration, OpenedRegistration, RefusedContent]
    unsigned = split(signer=None)
    assert kinds(join([alice[0], unsigned[1], bob[2], unsigned[0], unsigned[2]])) == [Part] * 4 + [OpenedRegistration]


def test_what_is_no_part_stays_as_it_is():
    asked = registering(1)
    sent = [Message(entry(number), each) for number, each in enumerate([asked, Failure.NOT_FOR_US, split()[0]])]
    assert joined(sent, {}, Reader(REGISTRATION, IDENTITY)) == sent


# What does not fit together.


def test_parts_of_another_hash_are_refused_and_used_up():
    first, second, third = split()
    found = join([first, second, altered(third, b"other"), first, second, third])
    assert kinds(found) == [Part, Part, Failure.PAYLOAD_MALFORMED, Part, Part, OpenedRegistration]
    assert found[2].last_part.segment.payload == b"other"


def test_parts_that_tell_of_different_counts_are_refused():
    first, second, third = split()
    two = Part(Segment(first.segment.entire_message_hash, 1, 2, second.segment.payload), ALICE.public_key)
    assert kinds(join([first, third, two])) == [Part, Part, Failure.SEGMENT_INCOMPLETE]
    assert kinds(join([first, two])) == [Part, Failure.PAYLOAD_MALFORMED]


def test_a_segment_in_a_segment_is_nobodys_message():
    nested = segments.split(REGISTERING, 10_000)[0]
    assert kinds(join(split(nested))) == [Part, Part, Failure.PAYLOAD_MALFORMED]


@pytest.mark.parametrize(
    ("data", "signer", "failure"),
    [
        (b"\xff" * 99, ALICE, Failure.METADATA_MALFORMED),
        (
            application.ApplicationMetadataMessage(payload=b"x", type=16).SerializeToString(),
            None,
            Failure.SIGNATURE_MISSING,
        ),
        (application.wrap(4711, b"x", ALICE), ALICE, Failure.TYPE_UNSUPPORTED),
    ],
)
def test_what_a_whole_message_is_refused_with(data, signer, failure):
    parts = split(data, 2, signer=signer)
    found = join(parts)
    assert kinds(found) == [Part, failure]
    assert found[1].last_part == parts[1]


def test_an_unsigned_message_is_of_who_signed_its_parts():
    unsigned = application.ApplicationMetadataMessage(payload=INNER, type=Type.PUSH_NOTIFICATION_REGISTRATION)
    *_, last = join(split(unsigned.SerializeToString()))
    assert last.content.client == ALICE.public_key


@pytest.mark.parametrize(
    ("limit", "most", "is_taken"),
    [
        ("MESSAGE_SEGMENTS", 3, True),
        ("MESSAGE_SEGMENTS", 2, False),
        ("SIGNER_BYTES", 3 * (100 + SEAL_BYTES), True),
        ("SIGNER_BYTES", 3 * (100 + SEAL_BYTES) - 1, False),
    ],
)
def test_a_message_that_is_too_large_is_refused_part_by_part(monkeypatch, limit, most, is_taken):
    monkeypatch.setattr(f"wakupush.server.engine.segments.{limit}", most)
    data = bytes(300)
    parts = [Part(Segment(keccak256(data), index, 3, bytes(100)), ALICE.public_key) for index in range(3)]
    found = join(parts)
    assert kinds(found) == ([Part, Part, Failure.METADATA_MALFORMED] if is_taken else [Failure.SEGMENT_LIMIT] * 3)
    assert [message.last_part is None for message in found] == [True, True, not is_taken]
    assert bool(_complete(parts, {})) == is_taken


# For another queue.


def test_the_last_part_leads_to_the_other_queue():
    parts = split()
    for stored, come in (({}, parts), (kept(*parts[:2]), parts[2:])):
        found = join(come, stored, queue=DISPATCH)
        assert found[-1] == Message(entry(len(come) - 1), Elsewhere(REGISTRATION))
        assert kinds(found[:-1]) == [Part] * (len(come) - 1)
    # Of that part alone nothing stays.
    assert kinds(join([*parts, parts[2], parts[0]], queue=DISPATCH)) == [Part, Part, Elsewhere, Elsewhere, Part]
    assert kinds(join(parts[2:], kept(*parts[:2]))) == [OpenedRegistration]


def test_a_query_topic_takes_queries_alone():
    found = join(split(ASKING, 2, on_query_topic=True), queue=QUERY)
    assert kinds(found) == [Part, OpenedQuery]
    assert found[1].content.asker == BOB.public_key
    assert kinds(join(split(ASKING, 2), queue=QUERY)) == [Part, OpenedQuery]
    assert kinds(join(split(on_query_topic=True), queue=QUERY)) == [Part, Part, Failure.TYPE_UNSUPPORTED]
    assert kinds(join(split(), queue=QUERY)) == [Part, Part, Elsewhere]


# What is loaded.


@pytest.mark.parametrize(
    ("come", "here", "is_complete"),
    [
        ([0, 1, 2], [], True),
        ([0, 1], [], False),
        ([0, 1], [2], True),
        ([0, 0], [1], False),
        ([1], [1, 2], False),
        ([2], [0, 1], True),
    ],
)
def test_which_messages_are_loaded(come, here, is_complete):
    parts = split()
    complete = _complete([parts[index] for index in come], {parts[0].name: frozenset(here)})
    assert list(complete) == ([parts[0].name] if is_complete else [])


def test_messages_are_loaded_as_they_become_complete():
    alice, bob = split(), split(signer=BOB)
    come = [alice[0], bob[0], bob[1], alice[1], bob[2], alice[2]]
    assert list(_complete(come, {})) == [bob[0].name, alice[0].name]


@given(st.data())
def test_what_is_put_together_was_loaded(data):
    """Where a message is not loaded its parts are empty, so it must not be read."""
    alice, bob = split(count=2), split(signer=BOB)
    some = st.lists(st.sampled_from([*alice, *bob]), max_size=9)
    here, come = data.draw(some), data.draw(some)
    stored = {}
    for part in here:
        stored.setdefault(part.name, {})[part.segment.index] = part.segment.payload
    stored = {name: parts for name, parts in stored.items() if len(parts) < (2 if name == alice[0].name else 3)}
    loaded = _complete(come, {name: frozenset(parts) for name, parts in stored.items()})
    whole = join(come, stored)
    assert (
        join(come, {name: parts if name in loaded else dict.fromkeys(parts, b"") for name, parts in stored.items()})
        == whole
    )
    assert {message.last_part.name for message in whole if message.last_part} == set(loaded)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 6))
def test_shuffled_and_repeated_parts_complete_once(seed, count, cut):
    shuffled = random.Random(seed)
    parts = split(count=count)
    come = shuffled.sample(parts, count)
    # Repeats come before the message is whole.
    repeats = [shuffled.choice(come[:-1]) for _ in range(3)] if count > 1 else []
    come = [*come[:-1], *repeats, come[-1]]
    first = join(come[:cut])
    waiting = [message.content for message in first if isinstance(message.content, Part)]
    second = join(come[cut:], kept(*waiting) if waiting and len(waiting) == len(first) else {})
    assert kinds([*first, *second]) == [Part] * (len(come) - 1) + [OpenedRegistration]
