"""What one side makes the other reads: sealing and opening, splitting and joining, wrapping and unwrapping."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.strangers import failure_of
from wakupush.model.failures import Failure
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.pb.segment_pb2 import SegmentMessage
from wakupush.protocol import application, ecies, envelopes, grants, payload, registration, segments
from wakupush.protocol.hashing import keccak256
from wakupush.protocol.keys import PrivateKey, PublicKey, recover
from wakupush.protocol.sealing import UnsealableError, seal, unseal

CLIENT, SERVER, STRANGER = (PrivateKey(bytes([number]) * 32) for number in (1, 2, 3))
open_registration = partial(registration.open_registration, most_bytes=10_000)
SHARED = CLIENT.shared_key(SERVER.public_key)
SIZES = (0, 1, 188, 189, 190, 191, 253, 254, 255, 256, 257, 65535, 65536)

secrets = st.binary(min_size=32, max_size=32).filter(lambda secret: b"\0" * 32 < secret < b"\xff" * 15)


@given(secrets, secrets)
def test_keys_of_both_sides(one, other):
    one, other = PrivateKey(one), PrivateKey(other)
    assert one.shared_key(other.public_key) == other.shared_key(one.public_key)
    assert PrivateKey.from_hex(one.secret.hex()).secret == one.secret
    key = one.public_key
    assert {PublicKey(key.compressed), PublicKey(key.uncompressed), PublicKey.from_hex(str(key))} == {key}
    assert (key == other.public_key) == (one.secret == other.secret)


@given(secrets, st.binary(min_size=32, max_size=32))
def test_who_signed_is_recovered(secret, digest):
    key = PrivateKey(secret)
    assert recover(digest, key.sign(digest)) == key.public_key


@given(st.binary(max_size=1000))
def test_ecies(plaintext):
    assert ecies.decrypt(ecies.encrypt(plaintext, SERVER.public_key), SERVER) == plaintext


@given(st.binary(max_size=1000))
def test_sealing(plaintext):
    assert unseal(SHARED, seal(SHARED, plaintext)) == plaintext
    with pytest.raises(UnsealableError):
        unseal(STRANGER.secret, seal(SHARED, plaintext))


@pytest.mark.parametrize("signer", [None, CLIENT], ids=["unsigned", "signed"])
@pytest.mark.parametrize("size", SIZES)
def test_payload(size, signer):
    data = bytes(size)
    opened = (
        payload.open_asymmetric(payload.seal_asymmetric(data, SERVER.public_key, signer), SERVER),
        payload.open_symmetric(payload.seal_symmetric(data, SHARED, signer), SHARED),
    )
    for content in opened:
        assert content.data == data
        assert content.signer == (signer and CLIENT.public_key)
        assert 1 <= len(content.padding) <= payload.PADDED_TO


@given(st.binary(max_size=1000), st.sampled_from([None, CLIENT]))
def test_encoded_payload(data, signer):
    encoded = payload.encode(data, signer)
    assert len(encoded) % payload.PADDED_TO == 0
    content = payload.decode(encoded)
    assert (content.data, content.signer) == (data, signer and CLIENT.public_key)


def test_largest_payload():
    largest = bytes(2**24 - 1)
    assert payload.decode(payload.encode(largest)).data == largest
    with pytest.raises(ValueError, match="less than 16 MiB"):
        payload.encode(largest + b"\0")


def test_nothing_sealed_is_sealed_twice_alike():
    for seal_again in (
        lambda: payload.seal_asymmetric(b"data", SERVER.public_key),
        lambda: payload.seal_symmetric(b"data", SHARED)[-12:],
        lambda: seal(SHARED, b"data")[:12],
        lambda: payload.encode(b"data"),
    ):
        assert len({seal_again() for _ in range(50)}) == 50


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=500))
def test_application_message(message_type, inner):
    metadata = application.wrap(message_type, inner, CLIENT)
    message_id = keccak256(CLIENT.public_key.uncompressed + metadata)
    assert application.unwrap(metadata) == application.ApplicationMessage(
        message_type, inner, CLIENT.public_key, message_id
    )
    opened = application.read(payload.Payload(metadata, STRANGER.public_key))
    assert opened == application.Opened(message_type, inner, CLIENT.public_key, message_id), (
        "no segment, no other signer"
    )


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=500), st.sampled_from([None, SERVER.public_key]))
def test_opened_message(message_type, inner, recipient):
    opened = application.Opened(message_type, inner, CLIENT.public_key, bytes(range(32)), recipient)
    sealed = application.seal_opened(opened, SHARED, b"hash")
    assert application.unseal_opened(sealed, SHARED, b"hash") == opened
    assert application.unseal_opened(sealed, SHARED, b"another") is None
    assert application.unseal_opened(sealed, STRANGER.secret, b"hash") is None


def test_unsigned_message_has_the_transports_signer():
    metadata = b"\x12\x05inner\x18\x14"
    opened = application.read(payload.Payload(metadata, CLIENT.public_key))
    assert opened == application.Opened(20, b"inner", CLIENT.public_key, keccak256(metadata))
    assert failure_of(application.read, payload.Payload(metadata, None)) is Failure.SIGNATURE_MISSING


messages = st.builds(
    PushNotificationRegistration,
    device_token=st.text(st.characters(exclude_categories=["Cs"])),
    version=st.integers(0, 2**64 - 1),
    blocked_chat_list=st.lists(st.binary(max_size=64), max_size=10),
    unregister=st.booleans(),
    muted_chat_list=st.lists(st.binary(max_size=64), max_size=10),
)


@given(messages)
def test_registration(message):
    sealed = registration.seal_registration(message, CLIENT, SERVER.public_key)
    assert open_registration(sealed, SERVER, CLIENT.public_key) == message
    assert failure_of(open_registration, sealed, SERVER, STRANGER.public_key) is Failure.REGISTRATION_UNDECRYPTABLE


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.booleans())
def test_grant(token, other):
    given_grant = grants.grant(CLIENT, SERVER.public_key, token)
    client, server = CLIENT.public_key, SERVER.public_key
    assert grants.is_granted(given_grant, client, server, token)
    assert not grants.is_granted(given_grant, server, client, token)
    assert not grants.is_granted(given_grant, STRANGER.public_key, server, token)
    assert not grants.is_granted(given_grant, client, STRANGER.public_key, token)
    assert not grants.is_granted(given_grant, client, server, token + "x" if other else token[:-1])


def test_grant_is_case_sensitive():
    given_grant = grants.grant(CLIENT, SERVER.public_key, "0fd8")
    assert not grants.is_granted(given_grant, CLIENT.public_key, SERVER.public_key, "0FD8")


@st.composite
def split(draw, *, least_parts=1):
    size = draw(st.integers(1, 50))
    data = draw(st.binary(min_size=1 + (least_parts - 1) * size, max_size=20 * size))
    parts = [segments.parse(part) for part in segments.split(data, size)]
    return data, draw(st.permutations(parts))


@given(split())
def test_segments_in_any_order(given_split):
    data, parts = given_split
    assert segments.join(parts) == data
    assert segments.join(parts + parts[:3]) == data, "a part may come twice"
    assert {part.index for part in parts} == set(range(parts[0].count))


@given(split())
def test_a_missing_segment(given_split):
    _, parts = given_split
    assert failure_of(segments.join, parts[1:]) is Failure.SEGMENT_INCOMPLETE


@given(split(least_parts=2))
def test_a_changed_segment(given_split):
    _, (first, *others) = given_split
    changed = segments.Segment(first.entire_message_hash, first.index, first.count, first.payload + b"x")
    assert failure_of(segments.join, [changed, *others]) is Failure.PAYLOAD_MALFORMED


def named(part, length, payload=None):
    """Return a part that names the length of the whole, as clients of 2026 write it, read again."""
    message = SegmentMessage(
        entire_message_hash=part.entire_message_hash,
        index=part.index,
        segments_count=part.count,
        payload=part.payload if payload is None else payload,
        original_payload_length=length,
    )
    return segments.parse(message.SerializeToString())


@given(split(), st.binary(max_size=20))
def test_joined_segments_are_cut_to_the_named_length(given_split, padding):
    data, parts = given_split
    padded = [
        named(part, len(data), part.payload + padding if part.index == part.count - 1 else None) for part in parts
    ]
    assert segments.join(padded) == data
    without = [named(part, 0, padded[position].payload) for position, part in enumerate(parts)]
    if padding:
        assert failure_of(segments.join, without) is Failure.PAYLOAD_MALFORMED
    else:
        assert segments.join(without) == data


@given(split(), st.integers(-20, 20).filter(bool))
def test_a_wrong_length_is_malformed(given_split, off):
    data, parts = given_split
    wrong = max(1, len(data) + off)
    if wrong == len(data):
        return
    assert failure_of(segments.join, [named(part, wrong) for part in parts]) is Failure.PAYLOAD_MALFORMED


@pytest.mark.parametrize("length", [2**32 + 1, 2**64 - 1])
def test_an_absurd_length_is_malformed(length):
    part = segments.Segment(bytes(32), 0, 2, b"x")
    assert failure_of(named, part, length) is Failure.PAYLOAD_MALFORMED


@given(st.binary(min_size=1, max_size=300), st.integers(20, 400))
def test_no_message_is_one_segment(metadata, most):
    """Clients of 2026 refuse it."""
    sealed = envelopes.seal_parts(metadata, SERVER.public_key, CLIENT, most_bytes=envelopes.ENVELOPE_BYTES + most)
    opened = [payload.open_asymmetric(part, SERVER).data for part in sealed]
    if len(opened) == 1:
        assert opened == [metadata]
    else:
        parts = [segments.parse(part) for part in opened]
        assert {part.count for part in parts} == {len(opened)}
        assert segments.join(parts) == metadata


@given(st.binary(min_size=1, max_size=300), st.integers(1, 400))
def test_segments_are_no_larger_than_asked(data, size):
    parts = [segments.parse(part) for part in segments.split(data, size)]
    assert len(parts) == -(-len(data) // size)
    assert all(0 < len(part.payload) <= size for part in parts)


@pytest.mark.parametrize(
    ("message", "is_segment"),
    [
        (SegmentMessage(entire_message_hash=bytes(32), segments_count=1, payload=b"x"), True),
        (SegmentMessage(entire_message_hash=bytes(32), segments_count=1), False),
        (SegmentMessage(entire_message_hash=bytes(31), segments_count=1, payload=b"x"), False),
        (SegmentMessage(entire_message_hash=bytes(65), segments_count=1, payload=b"x"), False),
        (SegmentMessage(), False),
    ],
    ids=["segment", "no_payload", "short_hash", "signature_for_hash", "empty"],
)
def test_what_is_a_segment(message, is_segment):
    assert (segments.parse(message.SerializeToString()) is not None) == is_segment


@pytest.mark.parametrize(("index", "count"), [(0, 0), (1, 1), (2**32 - 1, 1)])
def test_segment_beyond_its_count(index, count):
    message = SegmentMessage(entire_message_hash=bytes(32), index=index, segments_count=count, payload=b"x")
    assert failure_of(segments.parse, message.SerializeToString()) is Failure.PAYLOAD_MALFORMED
