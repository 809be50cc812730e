import json
from base64 import b64encode, urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wakupush.model.waku_message import INT64_MAX, INT64_MIN, WakuMessage
from wakupush.waku import codec
from wakupush.waku.codec import (
    CONTENT_TOPIC_LIMIT,
    META_LIMIT,
    PAYLOAD_LIMIT,
    decode_message,
    decode_messages,
    encode_message,
    parse,
)
from wakupush.waku.errors import AnswerTooLarge, NodeUnreadable

TOPIC = "/waku/1/0x1a2b3c4d/rfc26"

messages = st.builds(
    WakuMessage,
    payload=st.binary(max_size=300),
    content_topic=st.text(st.characters(exclude_categories=["Cs"]), max_size=CONTENT_TOPIC_LIMIT // 4),
    version=st.integers(0, 2**32 - 1),
    timestamp=st.integers(INT64_MIN, INT64_MAX),
    meta=st.binary(max_size=META_LIMIT),
    ephemeral=st.booleans(),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
message_like = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(("payload", "contentTopic", "version", "timestamp", "meta", "ephemeral"), json_values),
)


def entry(**changes):
    return {"payload": "aGk=", "contentTopic": TOPIC} | changes


@given(messages)
def test_what_is_encoded_reads_back_the_same(message):
    assert decode_message(json.loads(json.dumps(encode_message(message)))) == message


def test_encoding_is_exact():
    message = WakuMessage(payload=b"\xfb\xff\xbe", content_topic=TOPIC, timestamp=2**53 + 1, ephemeral=True)
    assert encode_message(message) == {
        "payload": "+/++",
        "contentTopic": TOPIC,
        "version": 1,
        "timestamp": 9007199254740993,
        "ephemeral": True,
    }
    assert encode_message(WakuMessage(payload=b"", content_topic=TOPIC, meta=b"m"))["meta"] == "bQ=="


def test_absent_keys_have_the_protobuf_defaults():
    expected = WakuMessage(payload=b"hi", content_topic=TOPIC, version=0)
    assert decode_message(entry()) == expected
    assert decode_message(entry(version=None, timestamp=None, meta=None, ephemeral=None, proof="?")) == expected


@given(st.binary(max_size=64))
def test_base64_of_either_alphabet_and_padding(payload):
    for encoded in (b64encode(payload).decode(), urlsafe_b64encode(payload).decode()):
        for text in (encoded, encoded.rstrip("=")):
            assert decode_message(entry(payload=text, meta=text)).payload == payload


@given(st.text(alphabet="AQgw09+/-_=\n\u00e9", max_size=16))
def test_both_ways_of_reading_base64_agree(text):
    if (data := codec._standard_base64(text)) is not None:
        assert codec._any_base64(text, "payload") == data


@pytest.mark.parametrize("timestamp", [1795225967168146118, "1795225967168146118"])
def test_a_timestamp_may_be_a_text(timestamp):
    assert decode_message(entry(timestamp=timestamp)).timestamp == 1795225967168146118


@pytest.mark.parametrize(
    "obj",
    [
        None,
        [],
        "text",
        {},
        {"payload": "aGk="},
        {"contentTopic": TOPIC},
        *(entry(payload=bad) for bad in (None, 5, ["aGk="], "a")),
        *(entry(payload=bad) for bad in ("!!!!", "aG k=", "aGk==", "aGk=aGk=", "====", "aGkaé", "aGk=\n")),
        *(entry(contentTopic=bad) for bad in (None, 5, "\ud800", "x" * (CONTENT_TOPIC_LIMIT + 1), "é" * 1000)),
        *(entry(timestamp=bad) for bad in (1.5e18, True, "", "1_0", " 1", "\u0661", "0x1", str(2**63), INT64_MAX + 1)),
        *(entry(timestamp=bad) for bad in (INT64_MIN - 1, "9" * 5000, [])),
        *(entry(version=bad) for bad in (-1, 2**32, "1", 1.0, False)),
        *(entry(meta=bad) for bad in (b64encode(bytes(META_LIMIT + 1)).decode(), 0, False, [], "?")),
        *(entry(ephemeral=bad) for bad in (0, 1, "true")),
    ],
)
def test_what_is_not_a_message_is_refused(obj):
    with pytest.raises(NodeUnreadable):
        decode_message(obj)


def test_bounds_are_inclusive():
    largest = entry(
        payload=b64encode(bytes(PAYLOAD_LIMIT)).decode(),
        contentTopic="x" * CONTENT_TOPIC_LIMIT,
        version=2**32 - 1,
        timestamp=str(INT64_MIN),
        meta=b64encode(bytes(META_LIMIT)).decode(),
    )
    assert len(decode_message(largest).payload) == PAYLOAD_LIMIT
    with pytest.raises(NodeUnreadable):
        decode_message(largest, payload_limit=PAYLOAD_LIMIT - 1)


@given(json_values | message_like)
def test_any_value_is_a_message_or_a_named_error(obj):
    try:
        message = decode_message(obj)
    except NodeUnreadable:
        return
    message.content_topic.encode()
    assert message.timestamp.to_bytes(8, "big", signed=True)


def test_a_large_answer_is_ascii(monkeypatch):
    """In memory one emoji makes four bytes of each character."""
    monkeypatch.setattr(codec, "NON_ASCII_LIMIT", 1000)
    assert parse(b'"' + b"x" * 2000 + b'"') == "x" * 2000
    with pytest.raises(AnswerTooLarge):
        parse(('"' + "x" * 2000 + '😀"').encode())


@pytest.mark.parametrize("body", [b"null", b"[]", b" [ ] "])
def test_an_empty_read(body):
    assert decode_messages(body) == ((), 0)


def test_a_bad_message_does_not_spoil_its_neighbours():
    body = json.dumps([entry(), 5, entry(timestamp="x"), entry(payload="Yg==")]).encode()
    messages, malformed = decode_messages(body)
    assert [message.payload for message in messages] == [b"hi", b"b"]
    assert malformed == 2


def test_invalid_utf8_spoils_only_its_message():
    body = b'[{"payload":"aGk=","contentTopic":"\xff"},{"payload":"aGk=","contentTopic":"ok"}]'
    messages, malformed = decode_messages(body)
    assert [message.content_topic for message in messages] == ["ok"]
    assert malformed == 1


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"true", b'"OK"', b"[", b"404 page not found", b"\xff\xfe", b"[" * 100_000, b"9" * 5000],
)
def test_a_body_that_is_no_read_is_refused(body):
    with pytest.raises(NodeUnreadable):
        decode_messages(body)


@given(st.binary(max_size=200) | st.lists(message_like, max_size=3).map(lambda value: json.dumps(value).encode()))
def test_any_body_is_a_value_or_a_named_error(body):
    try:
        messages, malformed = decode_messages(body)
    except NodeUnreadable:
        return
    assert len(messages) + malformed <= len(body)


@pytest.mark.parametrize("value", [b"{}", b"[]", b"1", b'{"a":[1]}'])
def test_answers_of_many_values_are_not_parsed(value):
    """33 MB of empty objects would take 850 MB of memory: a lying Store would end each process that asks it."""
    body = b"[" + b",".join([value] * (codec.MOST_VALUES + 1)) + b"]"
    with pytest.raises(AnswerTooLarge):
        parse(body)
    assert len(parse(b"[" + b",".join([value] * 1000) + b"]")) == 1000


def test_commas_in_texts_are_no_values():
    """Strangers choose content topics: none may make the page of a Store unreadable."""
    entry = {"contentTopic": '\\",[{' * 200_000, "payload": ""}
    assert parse(json.dumps([entry, entry]).encode()) == [entry, entry]
