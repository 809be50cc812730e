"""Putting messages in segments together: which part completes one, and which parts are left."""

import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.deciding import ALICE, BOB, IDENTITY, messages, registration_message
from wakupush.model.failures import Failure
from wakupush.model.queues import REGISTRATION
from wakupush.protocol import application, segments
from wakupush.protocol.application import Type
from wakupush.protocol.hashing import keccak256
from wakupush.protocol.query import encode_query
from wakupush.protocol.registration import request_id, seal_registration
from wakupush.protocol.sealing import SEAL_BYTES
from wakupush.protocol.segments import Segment
from wakupush.server.engine.kind import Kinds
from wakupush.server.engine.message import Elsewhere, Part
from wakupush.server.engine.open import Reader
from wakupush.server.engine.segments import _complete, joined
from wakupush.server.push.kind import PUSH_REQUESTS
from wakupush.server.query.kind import QUERIES
from wakupush.server.query.read import OpenedQuery
from wakupush.server.registration.kind import REGISTRATIONS
from wakupush.server.registration.read import OpenedRegistration, RefusedRegistration

CONTENT = registration_message(1).message
INNER = seal_registration(CONTENT, ALICE, IDENTITY.public_key)
WHOLE = application.wrap(Type.PUSH_NOTIFICATION_REGISTRATION, INNER, ALICE)
QUERY = application.wrap(Type.PUSH_NOTIFICATION_QUERY, encode_query([bytes(64)]), BOB)
KINDS = Kinds(REGISTRATIONS, QUERIES, PUSH_REQUESTS)


def split(data=WHOLE, count=3, *, signer=ALICE, on_public_topic=False):
    """Return a message in so many parts, as its envelopes hold them."""
    parts = [segments.parse(part) for part in segments.split(data, -(-len(data) // count))]
    assert len(parts) == count
    recipient = None if on_public_topic else IDENTITY.public_key
    return [Part(part, signer and signer.public_key, recipient) for part in parts]


def join(parts, payloads=None, *, kind=REGISTRATIONS):
    """Return the messages that parts become which arrive one after the other."""
    batch = messages(*parts)
    received = joined(batch, payloads or {}, Reader(KINDS, kind, IDENTITY))
    assert [message.entry for message in received] == [message.entry for message in batch]
    return received


def contents(joined_messages):
    """Return the failures of messages, and the types of their contents."""
    return [
        message.content if isinstance(message.content, Failure) else type(message.content)
        for message in joined_messages
    ]


def stored_parts(*parts):
    """Return what the database has of a message."""
    return {parts[0].name: {part.segment.index: part.segment.payload for part in parts}}


def altered(part, payload):
    segment = part.segment
    return Part(
        Segment(segment.entire_message_hash, segment.index, segment.count, payload),
        part.transport_signer,
        part.recipient,
    )


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_last_part_completes_in_any_order(order):
    parts = [split()[position] for position in order]
    received = join(parts)
    assert contents(received) == [Part, Part, OpenedRegistration]
    assert [message.content for message in received[:2]] == parts[:2]
    assert [message.last_part for message in received] == [None, None, parts[2]]
    assert (received[2].content.client, received[2].content.message) == (ALICE.public_key, CONTENT)
    assert received[2].content.request_id == request_id(INNER)


@pytest.mark.parametrize(
    ("length", "expected"),
    [(len(WHOLE), OpenedRegistration), (0, Failure.PAYLOAD_MALFORMED), (len(WHOLE) + 10, Failure.PAYLOAD_MALFORMED)],
)
def test_last_part_names_the_length_of_the_whole(length, expected):
    """Its padding is cut off; of stored parts only the payload is known."""
    first, second, third = split()
    padded = third.segment.payload + bytes(9)
    last = Part(Segment(first.segment.entire_message_hash, 2, 3, padded, length), ALICE.public_key, IDENTITY.public_key)
    assert contents(join([last], stored_parts(first, second))) == [expected]


def test_a_part_that_arrives_twice_completes_nothing():
    first, second, third = split()
    assert contents(join([first, first, second, second])) == [Part] * 4
    assert contents(join([first, first, second, third])) == [Part] * 3 + [OpenedRegistration]
    assert contents(join([second, second], stored_parts(first))) == [Part] * 2


def test_the_first_part_of_a_place_counts():
    first, second, third = split()
    wrong = altered(first, b"wrong")
    assert contents(join([wrong, second, third], stored_parts(first))) == [Part, Part, OpenedRegistration]
    assert contents(join([first, wrong, second, third])) == [Part, Part, Part, OpenedRegistration]
    assert contents(join([first, third], stored_parts(wrong, second))) == [Part, Failure.PAYLOAD_MALFORMED]


def test_parts_after_the_last_one_start_again():
    parts = split()
    received = join([*parts, parts[0], *parts[1:], parts[2]])
    assert contents(received) == [Part, Part, OpenedRegistration] * 2 + [Part]
    assert contents(join([parts[2], parts[0], parts[2]], stored_parts(*parts[:2]))) == [OpenedRegistration, Part, Part]


def test_messages_are_joined_independently():
    alice, bob = split(), split(signer=BOB)
    others = split(application.wrap(Type.PUSH_NOTIFICATION_REGISTRATION, INNER[:-1], ALICE))
    mixed = [part for triple in zip(alice, bob, others, strict=True) for part in triple]
    assert contents(join(mixed)) == [Part] * 6 + [OpenedRegistration, OpenedRegistration, RefusedRegistration]
    unsigned = split(signer=None)
    mixed = [alice[0], unsigned[1], bob[2], unsigned[0], unsigned[2]]
    assert contents(join(mixed)) == [Part] * 4 + [OpenedRegistration]


def test_other_messages_stay_as_they_are():
    batch = messages(registration_message(1), Failure.NOT_FOR_US, split()[0])
    assert joined(batch, {}, Reader(KINDS, REGISTRATIONS, IDENTITY)) == batch


# Parts that do not fit together.


def test_parts_of_another_hash_are_refused_and_end():
    first, second, third = split()
    received = join([first, second, altered(third, b"other"), first, second, third])
    assert contents(received) == [Part, Part, Failure.PAYLOAD_MALFORMED, Part, Part, OpenedRegistration]
    assert received[2].last_part.segment.payload == b"other"


def test_parts_of_different_counts_are_refused():
    first, second, third = split()
    two = Part(
        Segment(first.segment.entire_message_hash, 1, 2, second.segment.payload), ALICE.public_key, IDENTITY.public_key
    )
    assert contents(join([first, third, two])) == [Part, Part, Failure.SEGMENT_INCOMPLETE]
    assert contents(join([first, two])) == [Part, Failure.PAYLOAD_MALFORMED]


def test_a_segment_in_a_segment_is_malformed():
    nested = segments.split(WHOLE, 10_000)[0]
    assert contents(join(split(nested))) == [Part, Part, Failure.PAYLOAD_MALFORMED]


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
def test_an_unreadable_whole_is_refused(data, signer, failure):
    parts = split(data, 2, signer=signer)
    received = join(parts)
    assert contents(received) == [Part, failure]
    assert received[1].last_part == parts[1]


def test_the_signer_of_parts_signs_an_unsigned_whole():
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
def test_each_part_of_too_large_a_message_is_refused(monkeypatch, limit, most, is_taken):
    monkeypatch.setattr(f"wakupush.server.engine.segments.{limit}", most)
    data = bytes(300)
    parts = [
        Part(Segment(keccak256(data), index, 3, bytes(100)), ALICE.public_key, IDENTITY.public_key)
        for index in range(3)
    ]
    received = join(parts)
    assert contents(received) == ([Part, Part, Failure.METADATA_MALFORMED] if is_taken else [Failure.SEGMENT_LIMIT] * 3)
    assert [message.last_part is None for message in received] == [True, True, not is_taken]
    assert bool(_complete(parts, {})) == is_taken


# Messages for another queue.


def test_the_last_part_leads_to_the_other_queue():
    parts = split()
    for payloads, arriving in (({}, parts), (stored_parts(*parts[:2]), parts[2:])):
        received = join(arriving, payloads, kind=PUSH_REQUESTS)
        assert (received[-1].content.queue, received[-1].last_part) == (REGISTRATION, None)
        assert contents(received[:-1]) == [Part] * (len(arriving) - 1)
    # That part alone is not stored.
    assert contents(join([*parts, parts[2], parts[0]], kind=PUSH_REQUESTS)) == [Part, Part, Elsewhere, Elsewhere, Part]
    assert contents(join(parts[2:], stored_parts(*parts[:2]))) == [OpenedRegistration]


def test_a_query_topic_takes_only_queries():
    received = join(split(QUERY, 2, on_public_topic=True), kind=QUERIES)
    assert contents(received) == [Part, OpenedQuery]
    assert received[1].content.sender == BOB.public_key
    assert contents(join(split(QUERY, 2), kind=QUERIES)) == [Part, OpenedQuery]
    assert contents(join(split(on_public_topic=True), kind=QUERIES)) == [Part, Part, Failure.TYPE_UNSUPPORTED]
    assert contents(join(split(), kind=QUERIES)) == [Part, Part, Elsewhere]


# Messages that are loaded.


def test_messages_are_loaded_as_they_become_complete():
    alice, bob = split(), split(signer=BOB)
    arriving = [alice[0], bob[0], bob[1], alice[1], bob[2], alice[2]]
    assert list(_complete(arriving, {})) == [bob[0].name, alice[0].name]


@given(st.data())
def test_joined_messages_were_loaded(data):
    """A message that is not loaded has empty parts, so it must not be read."""
    alice, bob = split(count=2), split(signer=BOB)
    some = st.lists(st.sampled_from([*alice, *bob]), max_size=9)
    here, arriving = data.draw(some), data.draw(some)
    payloads = {}
    for part in here:
        payloads.setdefault(part.name, {})[part.segment.index] = part.segment.payload
    payloads = {name: parts for name, parts in payloads.items() if len(parts) < (2 if name == alice[0].name else 3)}
    loaded = _complete(arriving, {name: frozenset(parts) for name, parts in payloads.items()})
    whole = join(arriving, payloads)
    assert (
        join(
            arriving, {name: parts if name in loaded else dict.fromkeys(parts, b"") for name, parts in payloads.items()}
        )
        == whole
    )
    assert {message.last_part.name for message in whole if message.last_part} == set(loaded)


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 6))
def test_shuffled_and_repeated_parts_complete_once(seed, count, cut):
    shuffled = random.Random(seed)
    parts = split(count=count)
    arriving = shuffled.sample(parts, count)
    # Repeats arrive before the message is whole.
    repeats = [shuffled.choice(arriving[:-1]) for _ in range(3)] if count > 1 else []
    arriving = [*arriving[:-1], *repeats, arriving[-1]]
    first = join(arriving[:cut])
    waiting = [message.content for message in first if isinstance(message.content, Part)]
    second = join(arriving[cut:], stored_parts(*waiting) if waiting and len(waiting) == len(first) else {})
    assert contents([*first, *second]) == [Part] * (len(arriving) - 1) + [OpenedRegistration]
