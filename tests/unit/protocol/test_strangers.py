"""Strangers may send anything: whatever they send is read, or refused in one of the ways that callers expect."""

import dataclasses
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.deciding import preferences
from support.strangers import CLIENT, SERVER, SHARED, TOKEN, attempt, open_registration
from wakupush.model import waku_message
from wakupush.model.failures import Answer, Failure
from wakupush.model.registrations import QueriedDevice, Registration, Unregistration
from wakupush.pb.application_metadata_pb2 import ApplicationMetadataMessage
from wakupush.pb.push_notification_pb2 import (
    PushNotification,
    PushNotificationQuery,
    PushNotificationRegistration,
    PushNotificationRequest,
)
from wakupush.pb.segment_pb2 import SegmentMessage
from wakupush.protocol import (
    application,
    ecies,
    grants,
    hashing,
    payload,
    query,
    registration,
    request,
    segments,
    topics,
)
from wakupush.protocol.errors import Refused
from wakupush.protocol.hashing import keccak256
from wakupush.protocol.keys import InvalidKeyError, PrivateKey, PublicKey, recover
from wakupush.protocol.registration import Limits, check
from wakupush.protocol.sealing import UnsealableError, seal, unseal
from wakupush.protocol.uuids import is_uuid

LIMITS = Limits(list_items=3, list_item_bytes=64, text_bytes=100, registration_bytes=1000)
junk = st.binary(max_size=400)
#: What strings of a protobuf message may hold; a lone surrogate is no UTF-8.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.sampled_from([TOKEN, "\0", f"\0{TOKEN}\0"])
anything = st.text(max_size=200)
int32, uint32 = st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1)
signatures = st.binary(min_size=65, max_size=65) | st.builds(CLIENT.sign, st.binary(min_size=32, max_size=32)) | junk
metadata = st.builds(ApplicationMetadataMessage, signature=signatures, payload=junk, type=int32)
segment_messages = st.builds(
    SegmentMessage,
    entire_message_hash=st.binary(min_size=32, max_size=32) | junk,
    index=uint32,
    segments_count=uint32,
    payload=junk,
)
lists = st.lists(st.binary(max_size=70), max_size=5)
registrations = st.builds(
    PushNotificationRegistration,
    token_type=st.sampled_from([1, 2]) | int32,
    device_token=texts,
    installation_id=texts | st.just(TOKEN),
    access_token=texts | st.just(TOKEN),
    enabled=st.booleans(),
    version=st.integers(0, 2**64 - 1),
    allowed_key_list=lists,
    blocked_chat_list=lists,
    unregister=st.booleans(),
    grant=signatures | st.just(grants.grant(CLIENT, SERVER.public_key, TOKEN)),
    allow_from_contacts_only=st.booleans(),
    apn_topic=texts | st.just("im.status.ethereum"),
    block_mentions=st.booleans(),
    allowed_mentions_chat_list=lists,
    muted_chat_list=lists,
)
good_registrations = st.builds(
    PushNotificationRegistration,
    token_type=st.just(2),
    device_token=texts.map(lambda text: text.replace("\0", "")[:25] or "x"),  # 25 characters have at most 100 bytes
    installation_id=st.just(TOKEN),
    access_token=st.just(TOKEN),
    version=st.integers(1, 2**64 - 1),
    allowed_key_list=st.lists(st.binary(max_size=64), max_size=3),
    grant=st.just(grants.grant(CLIENT, SERVER.public_key, TOKEN)),
    allow_from_contacts_only=st.booleans(),
)
pushes = st.builds(
    PushNotification,
    access_token=texts,
    chat_id=junk,
    public_key=junk,
    installation_id=texts,
    message=junk,
    type=st.sampled_from([1, 2, 3]) | int32,
    author=junk,
)
requests = st.builds(PushNotificationRequest, requests=st.lists(pushes, max_size=5), message_id=junk)
queries = st.builds(PushNotificationQuery, public_keys=st.lists(st.binary(min_size=64, max_size=64) | junk, max_size=8))


def encoded(messages):
    """Return the messages' bytes, also with junk behind, cut short, and junk alone."""
    whole = messages.map(lambda message: message.SerializeToString())
    cut = st.tuples(whole, st.integers(0, 50)).map(lambda pair: pair[0][: -pair[1] or None])
    return st.one_of(whole, st.tuples(whole, junk).map(b"".join), cut, junk)


def outcome(call, *args):
    """Return the value or the failure."""
    try:
        return call(*args)
    except Refused as refused:
        return refused.failure


#: A good ephemeral key and IV.
FRONT = ecies.encrypt(b"", SERVER.public_key)[:81]


@given(junk | junk.map(FRONT.__add__))
@example(b"")
@example(b"\4" + bytes(112))
def test_ecies_decrypt(ciphertext):
    assert attempt(ecies.decrypt, ciphertext, SERVER) is None


@given(junk)
def test_payload_to_us(content):
    sealed = ecies.encrypt(content, SERVER.public_key)
    assert len(sealed) == len(content) + 113
    opened = attempt(payload.open_asymmetric, sealed, SERVER)
    assert opened == attempt(payload.decode, content)
    assert opened is None or len(opened.data) + len(opened.padding) < len(content)


@given(junk)
def test_payload_on_a_topic(content):
    nonce_in_front = seal(SHARED, content)
    opened = attempt(payload.open_symmetric, nonce_in_front[12:] + nonce_in_front[:12], SHARED)
    assert opened == attempt(payload.decode, content)
    assert attempt(payload.open_symmetric, content, SHARED) is None
    assert attempt(payload.open_asymmetric, content, SERVER) is None


@given(st.integers(0, 7), st.integers(0, 2**24), junk, signatures)
def test_payload_with_a_wrong_size(flags, size, data, signature):
    content = bytes([flags]) + size.to_bytes(4, "little")[: flags & 3] + data + signature
    opened = attempt(payload.decode, content)
    assert opened is None or len(opened.data) + len(opened.padding) < len(content)


SHORT = {
    "empty": b"",
    "no size": b"\1",
    "half a size": b"\2\0",
    "no data": b"\1\1",
    "a huge size": b"\3\xff\xff\xff" + bytes(100),
    "signed, no signature": b"\4" + bytes(64),
    "signed flags alone": b"\4" + CLIENT.sign(keccak256(b"\4")),
    "data that is the signature": b"\5\1" + CLIENT.sign(keccak256(b"\5\1")),
}


@pytest.mark.parametrize("content", SHORT.values(), ids=SHORT)
def test_payload_that_is_too_short(content):
    assert outcome(payload.decode, content) is Failure.PAYLOAD_MALFORMED


@given(encoded(metadata))
def test_unwrap(content):
    message = attempt(application.unwrap, content)
    assert message is None or len(message.inner) <= len(content)


@given(encoded(metadata) | encoded(segment_messages), st.sampled_from([None, CLIENT.public_key]))
def test_read(content, signer):
    opened = attempt(application.read, payload.Payload(content, signer))
    if isinstance(opened, application.Opened):
        assert opened.signer is not None
        assert len(opened.inner) <= len(content)


@given(encoded(segment_messages))
def test_segment(content):
    segment = attempt(segments.parse, content)
    if segment is not None:
        assert 0 <= segment.index < segment.count
        assert 0 < len(segment.payload) < len(content)


@given(
    st.lists(st.builds(segments.Segment, st.binary(max_size=33), uint32, uint32 | st.integers(0, 3), junk), max_size=4)
)
def test_join(parts):
    assert attempt(segments.join, parts) is None


def test_a_segment_of_many_costs_nothing():
    part = segments.Segment(bytes(32), 2**32 - 2, 2**32 - 1, b"x")
    assert attempt(segments.join, [part]) is None


@given(junk | encoded(registrations).map(partial(seal, SHARED)))
def test_open_registration(sealed):
    opened = outcome(open_registration, sealed, SERVER, CLIENT.public_key)
    if isinstance(opened, Failure):
        assert opened in {Failure.REGISTRATION_UNDECRYPTABLE, Failure.REGISTRATION_MALFORMED}
    else:
        assert opened.ByteSize() < len(sealed)


@given(registrations | good_registrations, st.integers(0, 2**64 - 1) | st.just(0))
@example(PushNotificationRegistration(), 0)
@example(PushNotificationRegistration(version=2**64 - 1, installation_id=TOKEN, unregister=True), 2**64 - 2)
def test_check(message, stored_version):
    row = outcome(
        partial(
            check,
            message,
            client=CLIENT.public_key,
            server=SERVER.public_key,
            stored_version=stored_version,
            limits=LIMITS,
        )
    )
    if isinstance(row, Failure):
        assert row.answer is not Answer.SILENCE
        assert registration.encode_response(bytes(64), row)
        return
    assert row.version == message.version > stored_version
    assert "\0" not in row.installation_id
    assert isinstance(row, Unregistration) == message.unregister
    if isinstance(row, Registration):
        assert "\0" not in row.access_token + row.device_token + row.apn_topic
        assert max(map(len, (row.allowed_key_list, row.blocked_chat_list, row.muted_chat_list))) <= LIMITS.list_items


@given(good_registrations)
def test_whatever_passes_can_be_revealed(message):
    row = check(message, client=CLIENT.public_key, server=SERVER.public_key, stored_version=0, limits=LIMITS)
    names = [field.name for field in dataclasses.fields(QueriedDevice)]
    fields = {name: getattr(row, name) for name in names if name not in {"key_hash", "server_key"}}
    info = query.reveal(QueriedDevice(key_hash=CLIENT.public_key.key_hash, **fields))
    assert info.access_token == ("" if row.allow_from_contacts_only else row.access_token)
    assert tuple(info.allowed_key_list) == (row.allowed_key_list if row.allow_from_contacts_only else ())


@given(encoded(queries), st.integers(0, 10))
def test_query(content, most_keys):
    keys = outcome(partial(query.parse_query, content, most_keys=most_keys))
    if isinstance(keys, Failure):
        assert keys in {Failure.INNER_MALFORMED, Failure.QUERY_LIMIT, Failure.QUERY_WITHOUT_KEYS}
    else:
        assert 0 < len(keys) <= most_keys
        assert len(set(keys)) == len(keys)
        assert {len(key) for key in keys} == {query.KEY_HASH_BYTES}


@given(encoded(requests))
def test_request(content):
    push_request = outcome(partial(request.parse_request, most_items=100), content)
    if isinstance(push_request, Failure):
        assert push_request in {Failure.INNER_MALFORMED, Failure.MESSAGE_ID_MISSING}
        return
    assert len(push_request.items) <= len(content) // 2
    assert all(item.type != 0 for item in push_request.items)
    failures = []
    for item in push_request.items:
        assert request.decide(item, None, most_bytes=128) is Failure.NOT_REGISTERED
        decision = request.decide(item, preferences(item, access_token=TOKEN), most_bytes=128)
        assert decision is None or isinstance(decision, request.Filtered | Failure)
        failures.append(decision if isinstance(decision, Failure) else None)
        assert len(request.delivery_key(push_request.message_id, item)) == 32
    assert request.encode_response(push_request, failures)


@given(anything | st.text("0123456789abcdefABCDEF-", min_size=32, max_size=45))
@example("\ud800" * 12)
def test_is_uuid(text):
    assert is_uuid(text) in {True, False}


@given(anything | st.from_regex(r"/waku/1/0x[0-9a-fA-F]{8}/rfc26\s?"))
def test_topic_of(name):
    topic = topics.topic_of(name)
    assert topic is None or name == f"/waku/1/0x{topic.hex()}/rfc26"


@given(junk | st.tuples(st.sampled_from([b"\2", b"\3"]), st.binary(min_size=32, max_size=32)).map(b"".join))
@example(b"\2" + bytes(32))
@example(b"\4" + bytes(64))
@example(b"\2" + b"\xff" * 32)
@example(b"\6" + SERVER.public_key.uncompressed[1:])
def test_public_key(data):
    key = attempt(PublicKey, data, allowed=InvalidKeyError)
    assert key is None or data in {key.compressed, key.uncompressed}
    assert key is None or 0 <= key.partition < 5000


@given(anything | st.text("0123456789abcdefx \n", min_size=60, max_size=70) | junk.map(bytes.hex))
@example("00" * 32)
@example("ff" * 32)
@example("0x" + "01" * 32)
@example("\u0663" * 64)
def test_keys_of_hex(text):
    for kind in (PrivateKey, PublicKey):
        key = attempt(kind.from_hex, text, allowed=InvalidKeyError)
        assert key is None or isinstance(key, kind)


@given(st.binary(min_size=32, max_size=32), signatures)
@example(bytes(32), bytes(65))
@example(bytes(32), b"\xff" * 65)
@example(bytes(32), bytes(64) + b"\3")
def test_recover(digest, signature):
    assert isinstance(attempt(recover, digest, signature), PublicKey | None)
    assert grants.is_granted(signature, CLIENT.public_key, SERVER.public_key, TOKEN) in {True, False}


@given(junk)
def test_unseal(sealed):
    assert attempt(unseal, SHARED, sealed, allowed=UnsealableError) is None
    assert application.unseal_opened(sealed, SHARED, bytes(32)) is None


@given(junk, anything.filter(str.isprintable), st.integers(waku_message.INT64_MIN, waku_message.INT64_MAX), junk)
def test_message_hash(content, topic, timestamp, meta):
    message = waku_message.WakuMessage(payload=content, content_topic=topic, timestamp=timestamp, meta=meta)
    assert len(hashing.message_hash("/waku/2/rs/16/32", message)) == 32
