"""The client of Stores: answers of both kinds, and walks over pages."""

import json
import time
from base64 import b64encode
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash
from wakupush.waku import client as client_module
from wakupush.waku import store as store_module
from wakupush.waku.errors import AnswerTooLarge, NodeBusy, NodeError, NodeUnreachable, NodeUnreadable
from wakupush.waku.store import Store
from wakupush.waku.store_codec import (
    V1,
    V3,
    Cursor,
    Page,
    Query,
    StoredMessage,
    decode_v1,
    decode_v3,
    hash_parameters,
    is_go_waku,
)

SHARD = "/waku/2/rs/16/32"
TOPIC = "/waku/1/0x1a2b3c4d/rfc26"
MESSAGE = WakuMessage(payload=b"hi", content_topic=TOPIC, timestamp=7)
HASH = message_hash(SHARD, MESSAGE)
QUERY = Query(pubsub_topic=SHARD, content_topics=(TOPIC, "/b/1/b/b"), start=1, end=1000)
JSON_MESSAGE = {"payload": b64encode(b"hi").decode(), "contentTopic": TOPIC, "version": 1, "timestamp": 7}


def v3(*entries, **fields):
    return json.dumps({"requestId": "x", "statusCode": 200, "statusDesc": "OK", "messages": entries, **fields}).encode()


def v1(*entries, **fields):
    return json.dumps({"messages": entries or None, **fields}).encode()


# --- what is asked ---


def test_parameters():
    assert QUERY.parameters() == {
        "pubsubTopic": SHARD,
        "contentTopics": f"{TOPIC},/b/1/b/b",
        "startTime": "1",
        "endTime": "1000",
        "ascending": "true",
        "pageSize": "16",
    }
    assert QUERY.parameters(100)["pageSize"] == "100"
    assert replace(QUERY, ascending=False).parameters()["ascending"] == "false"
    assert "contentTopics" not in Query(pubsub_topic=SHARD, start=1, end=2).parameters()
    assert hash_parameters([HASH, bytes(32)])["hashes"] == f"0x{HASH.hex()},0x{bytes(32).hex()}"


# --- Store v3 ---


def test_hashes_of_a_v3():
    page, cursor = decode_v3(v3({"messageHash": f"0x{HASH.hex()}"}, paginationCursor=f"0x{HASH.hex()}"), SHARD)
    assert page == Page((StoredMessage(HASH),))
    assert cursor == Cursor({"cursor": f"0x{HASH.hex()}"})


def test_messages_of_a_v3_have_the_hash_that_is_told():
    good = {"messageHash": f"0x{HASH.hex()}", "message": JSON_MESSAGE, "pubsubTopic": SHARD}
    wrong = {"messageHash": f"0x{bytes(32).hex()}", "message": JSON_MESSAGE}
    unreadable = {"messageHash": f"0x{HASH.hex()}", "message": {"payload": 1}}
    for entry in (wrong, unreadable, {}, None, "0x", {"messageHash": "0x12"}):
        assert decode_v3(v3(good, entry), SHARD) == (Page((StoredMessage(HASH, MESSAGE),), 1), None)


@pytest.mark.parametrize("messages", [[], None])
def test_an_empty_page_of_a_v3(messages):
    assert decode_v3(v3(messages=messages, paginationCursor=""), SHARD) == (Page(()), None)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (v3(statusCode=429, statusDesc="TOO_MANY_REQUESTS"), NodeBusy),
        (v3(statusCode=300, statusDesc="BAD_RESPONSE: no"), NodeUnreachable),
        (v3(statusCode=True), NodeUnreadable),
        (v3(statusCode="200"), NodeUnreadable),
        (v3(messages={}), NodeUnreadable),
        (v3(*[{}] * 101), NodeUnreadable),
        (v3(paginationCursor="0x12"), NodeUnreadable),
        (v3(paginationCursor={}), NodeUnreadable),
        (b"[]", NodeUnreadable),
        (b"OK", NodeUnreadable),
        (b'{"messages":[]}', NodeUnreadable),
    ],
)
def test_trouble_of_a_v3_has_a_name(body, error):
    with pytest.raises(NodeError) as caught:
        decode_v3(body, SHARD)
    assert type(caught.value) is error


# --- Store v1 ---


def cursor_v1(timestamp, digest="+/8="):
    return {"pubsubTopic": SHARD, "senderTime": str(timestamp), "storeTime": "9", "digest": digest}


def test_messages_of_a_v1():
    page, cursor = decode_v1(v1(JSON_MESSAGE, {}, cursor=cursor_v1(7)), SHARD)
    assert page == Page((StoredMessage(HASH, MESSAGE),), 1)
    assert cursor == Cursor({"senderTime": "7", "storeTime": "9", "digest": "-_8="})
    assert decode_v1(v1(), SHARD) == (Page(()), None)
    assert decode_v1(v1(JSON_MESSAGE, cursor={}), SHARD)[1] is None


@pytest.mark.parametrize(("came", "goes"), [("+/8", "-_8="), ("+/8=", "-_8="), ("-_8=", "-_8="), ("AAAA", "AAAA")])
def test_the_digest_goes_back_url_safe_and_padded(came, goes):
    cursor = decode_v1(v1(JSON_MESSAGE, cursor=cursor_v1(0, came)), SHARD)[1]
    assert cursor is not None
    assert cursor.parameters["digest"] == goes
    assert cursor.is_timeless


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (v1(error_message="invalid cursor"), NodeUnreachable),
        (v1(JSON_MESSAGE, cursor="x"), NodeUnreadable),
        (v1(JSON_MESSAGE, cursor=cursor_v1("x")), NodeUnreadable),
        (v1(JSON_MESSAGE, cursor=cursor_v1(1, "no base64!")), NodeUnreadable),
        (b'{"messages":{}}', NodeUnreadable),
        (b"{}", NodeUnreadable),
        (b"null", NodeUnreadable),
    ],
)
def test_trouble_of_a_v1_has_a_name(body, error):
    with pytest.raises(NodeError) as caught:
        decode_v1(body, SHARD)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("body", "is_it"),
    [
        (b'{"messages":null,"error_message":"protocols not supported: [/vac/waku/store-query/3.0.0]"}', True),
        (b'{"status_code":400,"status_desc":"x"}', True),
        (b'{"request_id":"x","status_code":200,"status_desc":"OK"}', True),
        (v3(), False),
        (b"BAD_RESPONSE: cursor not found", False),
        (b"", False),
        (b"[1]", False),
    ],
)
def test_a_go_waku_is_known_by_its_answer(body, is_it):
    assert is_go_waku(body) is is_it


# --- strangers ---

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = (
    *("statusCode", "statusDesc", "messages", "paginationCursor", "messageHash", "message", "error_message", "cursor"),
    *("senderTime", "storeTime", "digest", "payload", "contentTopic", "timestamp", "meta", "version", "ephemeral"),
)
LIKELY = st.sampled_from([200, 429, "0x" + "ab" * 32, "7", "+/8=", "aGk=", TOPIC, JSON_MESSAGE, cursor_v1(0)])
ANSWERS = st.recursive(
    LIKELY | JSON,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=12,
)


@given(ANSWERS.map(lambda answer: json.dumps(answer).encode()) | st.binary(max_size=60))
def test_any_answer_is_a_page_or_a_named_error(body):
    for decode in (decode_v3, decode_v1):
        with suppress(NodeError):
            page, cursor = decode(body, SHARD)
            assert all(len(message.hash) == 32 for message in page.messages)
            assert cursor is None or all(isinstance(value, str) for value in cursor.parameters.values())
    assert is_go_waku(body) in (True, False)


# --- walks, over pages that are made up ---


class Archive(Store):
    """A Store whose HTTP is a function of path and parameters."""

    def __init__(self, answer_):
        super().__init__("http://127.0.0.1:1")
        self.requests = []
        self.answer = answer_

    @contextmanager
    def _answer(self, path, _value=None, parameters=None):
        self.requests.append((path, dict(parameters)))
        answer = self.answer(path, parameters)
        status, body = answer if isinstance(answer, tuple) else (200, answer)
        if len(body) > client_module.ANSWER_LIMIT:
            raise AnswerTooLarge
        yield status, body


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)


def numbered(number):
    return {"messageHash": f"0x{number:064x}"}


def walked(store, query=QUERY, *, with_messages=False):
    return [message.hash for page in store.walk(query, with_messages=with_messages) for message in page.messages]


def test_a_walk_follows_the_cursor_and_keeps_its_end():
    def answer(_, parameters):
        at = int(parameters.get("cursor", "0x0"), 16)
        numbers = range(at + 1, min(at + 3, 6))
        more = {"paginationCursor": f"0x{numbers[-1]:064x}"} if numbers[-1] < 5 else {}
        return v3(*map(numbered, numbers), **more)

    with Archive(answer) as store:
        assert walked(store) == [number.to_bytes(32, "big") for number in range(1, 6)]
        assert walked(store) == [number.to_bytes(32, "big") for number in range(1, 6)]
    assert {path for path, _ in store.requests} == {V3}
    assert [parameters["pageSize"] for _, parameters in store.requests].count(
        "1"
    ) == 1  # which kind it is, is asked once
    assert {parameters["endTime"] for _, parameters in store.requests} == {"1000"}
    assert {parameters.get("includeData") for _, parameters in store.requests[1:]} == {"false"}


def test_more_content_topics_than_a_query_has_are_walked():
    """A server with six keys has twelve of its own."""
    topics = tuple(f"/waku/1/0x{number:08x}/rfc26" for number in range(12))
    entries = {topic: numbered(number) for number, topic in enumerate(topics, 1)}

    def answer(_, parameters):
        topics = parameters["contentTopics"].split(",")
        assert len(topics) <= 10
        return v3(*(entries[topic] for topic in topics))

    with Archive(answer) as store:
        hashes = walked(store, Query(pubsub_topic=SHARD, content_topics=topics, start=1, end=2))
    assert hashes == [number.to_bytes(32, "big") for number in range(1, 13)]


@pytest.mark.parametrize(
    "pages",
    [
        lambda _: v3(numbered(1), paginationCursor=f"0x{1:064x}"),  # the same for ever
        lambda number: v3(numbered(number), paginationCursor=f"0x{number % 3:064x}"),  # in a circle
        lambda number: v3(paginationCursor=f"0x{number:064x}"),  # nothing, and more of it
        lambda number: v3(numbered(number), paginationCursor=f"0x{number:064x}"),  # always one more
    ],
)
def test_pages_without_an_end_are_given_up(pages, monkeypatch):
    monkeypatch.setattr(store_module, "MOST_PAGES", 20)
    count = iter(range(1, 1000))
    with Archive(lambda *_: pages(next(count))) as store, pytest.raises(NodeUnreadable):
        walked(store)


def test_a_node_that_limits_the_rate_is_asked_again():
    busy = iter([v3(), (429, b""), v3(statusCode=429), v3(numbered(1))])
    with Archive(lambda *_: next(busy)) as store:
        assert walked(store) == [(1).to_bytes(32, "big")]


def test_a_node_that_never_has_time_is_given_up():
    with Archive(lambda *_: (429, b"")) as store, pytest.raises(NodeBusy):
        walked(store)
    assert len(store.requests) == 7


def test_a_node_that_was_exchanged_is_met_anew():
    kinds = iter([v3(), (500, b""), b'{"error_message":"protocols not supported"}', v1(JSON_MESSAGE)])
    with Archive(lambda *_: next(kinds)) as store:
        with pytest.raises(NodeUnreachable):
            walked(store)
        assert walked(store) == [HASH]
    assert [path for path, _ in store.requests] == [V3, V3, V3, V1]


def test_missing_messages_are_fetched_by_parts():
    def answer(_, parameters):
        hashes = parameters["hashes"].split(",")
        assert len(hashes) <= 16
        message = {"messageHash": f"0x{HASH.hex()}", "message": JSON_MESSAGE}
        return v3(*([message] if message["messageHash"] in hashes else []), {"messageHash": "0x"})

    with Archive(answer) as store:
        pages = list(store.fetch(QUERY, [number.to_bytes(32, "big") for number in range(119)] + [HASH]))
    assert pages == [Page((), 1)] * 7 + [Page((StoredMessage(HASH, MESSAGE),), 1)]
    assert len(store.requests) == 8


def test_messages_too_large_together_are_fetched_singly(monkeypatch):
    monkeypatch.setattr(client_module, "ANSWER_LIMIT", 10_000)
    messages = [replace(MESSAGE, payload=b"%d" % number) for number in range(3)]
    by_hash = {f"0x{message_hash(SHARD, each).hex()}": json_message(each) for each in messages}

    def answer(_, parameters):
        hashes = parameters["hashes"].split(",")
        return v3(*({"messageHash": each, "message": by_hash[each]} for each in hashes)) + b" " * 5000 * (
            len(hashes) - 1
        )

    with Archive(answer) as store:
        pages = list(store.fetch(QUERY, [message_hash(SHARD, each) for each in messages]))
        assert [message.message for page in pages for message in page.messages] == messages
        assert len(store.requests) == 1 + 3
    with Archive(lambda *_: b" " * 10_001) as store, pytest.raises(AnswerTooLarge):
        list(store.fetch(QUERY, [HASH]))


def test_node_that_was_exchanged_before_a_fetch_is_met_anew():
    kinds = iter([v3(), v3(), (500, b""), b'{"error_message":"protocols not supported"}', v1(JSON_MESSAGE)])
    with Archive(lambda *_: next(kinds)) as store:
        assert walked(store) == []
        with pytest.raises(NodeUnreachable):
            list(store.fetch(QUERY, [HASH]))
        assert walked(store) == [HASH]
    assert [path for path, _ in store.requests] == [V3, V3, V3, V3, V1]


def test_oversized_page_is_read_message_by_message(monkeypatch):
    monkeypatch.setattr(client_module, "ANSWER_LIMIT", 10_000)
    entries = [{"messageHash": f"0x{number:064x}"} for number in range(40)]

    def answer(_, parameters):
        start = int(parameters.get("cursor", "0x-1"), 16) + 1 if "cursor" in parameters else 0
        size = int(parameters["pageSize"])
        page = entries[start : start + size]
        more = {"paginationCursor": page[-1]["messageHash"]} if start + size < len(entries) else {}
        padding = " " * 10_000 if size > 1 and 8 in range(start, start + size) else ""
        return v3(*page, **more) + padding.encode()

    with Archive(answer) as store:
        hashes = [message.hash for page in store.walk(QUERY, with_messages=True) for message in page.messages]
    assert hashes == [number.to_bytes(32, "big") for number in range(40)]
    sizes = [int(parameters["pageSize"]) for _, parameters in store.requests]
    assert sizes.count(1) <= 12


class GoArchive(Archive):
    """An archive as go-waku's: sorted by the sender's time, continued from the time of arrival."""

    def __init__(self, entries):
        super().__init__(self.page)
        self.entries = sorted(entries, key=lambda entry: (entry[0], entry[2]))

    def page(self, path, parameters):
        if path == V3:
            return 500, b'{"messages":null,"error_message":"protocols not supported"}'
        start, end = int(parameters["startTime"]), int(parameters["endTime"])
        after = (int(parameters.get("storeTime", -1)), parameters.get("digest", ""))
        entries = [
            (timestamp, store_time, number)
            for timestamp, store_time, number in self.entries
            if start <= store_time <= end and (store_time, f"{number:08d}") > after
        ]
        page = entries[:100]
        cursor = {}
        if len(entries) > 100:
            timestamp, store_time, number = page[-1]
            at = {"senderTime": str(timestamp), "storeTime": str(store_time), "digest": f"{number:08d}"}
            cursor = {"cursor": {"pubsubTopic": SHARD, **at}}
        return v1(
            *({**JSON_MESSAGE, "timestamp": timestamp, "payload": f"{number:08d}"} for timestamp, _, number in page),
            **cursor,
        )


@given(timeless=st.integers(0, 350), stamped=st.integers(1, 150), random=st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_messages_without_a_timestamp_hide_no_others(timeless, stamped, random):
    arrivals = random.sample(range(1, 1001), timeless + stamped)
    entries = [(0, store_time, number) for number, store_time in enumerate(arrivals[:timeless])]
    entries += [(store_time, store_time, 1000 + number) for number, store_time in enumerate(arrivals[timeless:])]
    with GoArchive(entries) as store:
        assert len(set(walked(store))) == len(entries)


def test_many_messages_of_one_time_take_several_pages():
    with GoArchive([(500, 500, number) for number in range(250)]) as store:
        assert len(set(walked(store))) == 250
    assert len(store.requests) == 1 + 3


def test_full_page_without_timestamps_ends_the_walk():
    entries = [(0, 500, number) for number in range(350)] + [(600, 600, 1000)]
    with GoArchive(entries) as store:
        assert len(set(walked(store))) == 351
    spans = [
        (int(parameters["startTime"]), int(parameters["endTime"])) for path, parameters in store.requests if path == V1
    ]
    assert all(second != first or first[0] == first[1] for first, second in pairwise(spans))


# --- what was not asked for ---


def json_message(message):
    fields = {"payload": b64encode(message.payload).decode(), "contentTopic": message.content_topic, "version": 1}
    return fields | {"timestamp": message.timestamp}


#: Of another topic, before and after the asked time, and without one.
UNASKED = [replace(MESSAGE, **each) for each in ({"content_topic": "/c/1/c/c"}, {"timestamp": 0}, {"timestamp": 1001})]


@pytest.mark.parametrize("with_messages", [True, False])
def test_unrequested_messages_count_as_malformed(with_messages):
    """One Store cannot put messages where nobody looked for them, nor make a walk meet them at every turn."""
    entries = [
        {"messageHash": f"0x{message_hash(SHARD, each).hex()}", "message": json_message(each)}
        for each in (MESSAGE, *UNASKED)
    ]

    def answer(_, parameters):
        if parameters.get("includeData") != "true":
            return v3(*({"messageHash": each["messageHash"]} for each in entries))
        return v3(*(each for each in entries if each["messageHash"] in parameters.get("hashes", each["messageHash"])))

    with Archive(answer) as store:
        [page] = store.walk(QUERY, with_messages=with_messages)
        if not with_messages:
            assert (len(page.messages), page.malformed) == (4, 0)  # hashes tell nothing
            [page] = store.fetch(QUERY, [message.hash for message in page.messages])
    assert page == Page((StoredMessage(HASH, MESSAGE),), 3)


def test_store_v1_returns_messages_without_a_time():
    answers = iter([(404, b""), v1(*map(json_message, (MESSAGE, *UNASKED)))])
    with Archive(lambda *_: next(answers)) as store:
        [page] = store.walk(QUERY, with_messages=True)
    assert [message.message for message in page.messages] == [MESSAGE, UNASKED[1]]
    assert page.malformed == 2


def test_the_oldest_message_of_a_store():
    old = replace(MESSAGE, timestamp=5)
    answers = iter([(404, b""), v1(*map(json_message, (replace(MESSAGE, timestamp=0), MESSAGE, old))), v1()])
    with Archive(lambda *_: next(answers)) as store:
        assert store.oldest(SHARD) == 5
        assert store.oldest(SHARD) is None
