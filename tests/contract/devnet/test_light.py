"""Filter and light push of the development node with go-waku's manners, and nodes as peers of each other.

Those of nwaku: test_nwaku_recorded.
"""

from __future__ import annotations

import base64
import re
import time
from itertools import count

import pytest

from support import recordings
from wakupush.devnet.node import go_waku
from wakupush.devnet.node import nwaku as nwaku_manners
from wakupush.devnet.node.filter_state import GoWakuFilter
from wakupush.devnet.node.go_waku_state import GoWakuNode
from wakupush.devnet.node.state import DevelopmentNode, NodeSettings
from wakupush.devnet.processes import wait_until
from wakupush.model.waku_message import WakuMessage

AREA = "waku-rest"
SHARD, OTHER = "/waku/2/rs/16/32", "/waku/2/rs/16/64"
TOPIC, OTHER_TOPIC = "/waku/1/0x1a2b3c4d/rfc26", "/waku/1/0xffffffff/rfc26"

#: Recordings of requests to a node that is subscribed to `TOPIC` and its neighbour, or is not.
SUBSCRIBED = {
    *("filter-messages-again", "filter-messages-empty", "filter-messages-not-subscribed"),
    *("filter-messages-after-service-restart", "filter-messages-unencoded", "filter-messages-by-contenttopic"),
    *("filter-ping", "filter-ping-after-resubscribe", "filter-ping-no-id"),
    *("filter-subscribe-again", "filter-resubscribe", "filter-unsubscribe", "filter-unsubscribe-all"),
}
FRESH = {
    *("filter-messages-after-client-restart", "filter-ping-before-subscribe", "filter-ping-after-service-restart"),
    *(f"filter-subscribe{end}" for end in ("", "-101", "-bad-json", "-empty-filters", "-no-pubsub", "-put")),
    "filter-subscribe-wrong-shard",
    *(f"lightpush-v1{end}" for end in ("", "-bad-json", "-empty-payload", "-no-message", "-no-pubsub", "-wrong-shard")),
    "lightpush-v3",
}
#: What the other tests compare.
COMPARED_BELOW = {
    "test_messages_read_as_recorded": {f"filter-messages{end}" for end in ("", "-ct2", "-after-resubscribe")},
    "test_what_is_unread_stays_after_unsubscribing": {"filter-messages-after-unsubscribe-all"},
    "test_the_oldest_of_a_topic_goes": {"filter-messages-overflow"},
    "test_one_request_a_second": {"filter-subscribe-rate-limited"},
    "test_unsubscribing_what_is_unknown": {"filter-unsubscribe-unknown"},
    "test_too_big": {"lightpush-v1-too-big"},
}
NOT_APPLICABLE = {
    "filter-subscribe-service-down": "the node is its own service node",
    "filter-ping-service-down": "the node is its own service node",
    "lightpush-v1-service-down": "the node is its own service node",
    "lightpush-v1-on-service-node": "the node is its own service node",
    "filter-subscribe-no-requestid": "a second of the rate limit made it fail; the id may be empty",
}


def test_every_recording_is_accounted_for():
    names = {name for name in recordings.names(AREA) if re.match("filter-|lightpush-", name)}
    groups = (SUBSCRIBED, FRESH, *COMPARED_BELOW.values(), NOT_APPLICABLE)
    assert sorted(name for group in groups for name in group) == sorted(names)
    assert COMPARED_BELOW.keys() <= globals().keys()


@pytest.fixture
def node():
    return GoWakuNode(NodeSettings(shards=(SHARD,), max_message_bytes=150_000))


@pytest.fixture
def client(serve, node):
    return serve(go_waku.create_app(node))


def send(client, recording):
    return client.request(
        recording.method, recording.path, headers=recording.headers, content=recording.content() or None
    )


def quoted(topic):
    return topic.replace("/", "%2F")


def a_second_later_each_time():
    return count().__next__


def subscribe(node, *topics):
    node.filter = GoWakuFilter(node.topics, a_second_later_each_time())
    assert node.filter.subscribe(SHARD, topics) == (200, "OK")


def publish(node, payload, topic=TOPIC, **fields):
    node.publish(SHARD, WakuMessage(payload=payload, content_topic=topic, timestamp=time.time_ns(), **fields))


@pytest.mark.parametrize("name", sorted(SUBSCRIBED | FRESH))
def test_answers_as_recorded(name, client, node):
    if name in SUBSCRIBED:
        subscribe(node, TOPIC, OTHER_TOPIC)
    recording = recordings.load(AREA, name)
    answer = send(client, recording)
    assert answer.status_code == recording.status
    assert answer.text == recording.text
    assert answer.headers.get("content-type", "").lower() == (recording.content_type or "").lower()


@pytest.mark.parametrize("name", sorted(COMPARED_BELOW["test_messages_read_as_recorded"]))
def test_messages_read_as_recorded(name, client, node):
    subscribe(node, TOPIC, OTHER_TOPIC)
    recording = recordings.load(AREA, name)
    for message in recording.answer:
        # As they were published: what is not there was not given.
        fields = {key: value for key, value in message.items() if value is not None}
        client.post(f"/relay/v1/messages/{quoted(SHARD)}", json=fields).raise_for_status()
    answer = send(client, recording)
    assert (answer.status_code, answer.text) == (recording.status, recording.text)
    assert send(client, recording).json() == []


def test_what_is_unread_stays_after_unsubscribing(client, node):
    node.filter.subscribe(SHARD, [TOPIC])
    publish(node, b"one")
    send(client, recordings.load(AREA, "filter-unsubscribe-all"))
    publish(node, b"two")
    messages = send(client, recordings.load(AREA, "filter-messages-after-unsubscribe-all")).json()
    assert [base64.b64decode(each["payload"]) for each in messages] == [b"one"]


def test_the_oldest_of_a_topic_goes():
    recorded_messages = recordings.load(AREA, "filter-messages-overflow").answer
    unhurried = GoWakuFilter({SHARD}, a_second_later_each_time())
    unhurried.subscribe(SHARD, [TOPIC])
    numbers = [int(base64.b64decode(message["payload"])[:8]) for message in recorded_messages]
    assert numbers == list(range(numbers[0], numbers[0] + GoWakuFilter.CAPACITY))
    for number in range(numbers[-1] + 1):
        unhurried.deliver(SHARD, WakuMessage(payload=b"%d" % number, content_topic=TOPIC))
    assert [int(message.payload) for message in unhurried.read(TOPIC, SHARD)] == numbers


def test_a_burst_is_cut(node):
    node.filter.subscribe(SHARD, [TOPIC])
    for number in range(300):
        publish(node, b"%d" % number)
    assert 20 <= len(node.filter.read(TOPIC, SHARD)) <= 30  # 24 of 300 when it was recorded


def test_one_request_a_second(client):
    first, second = recordings.load(AREA, "filter-subscribe"), recordings.load(AREA, "filter-subscribe-rate-limited")
    assert send(client, first).status_code == 200
    answer = send(client, second)
    assert (answer.status_code, answer.text) == (second.status, second.text)
    wait_until(lambda: send(client, second).status_code == 200, timeout=60, interval=0.2, what="a second later")


def test_one_message_a_second(client):
    def push():
        message = {"payload": "aGk=", "contentTopic": TOPIC, "timestamp": time.time_ns()}
        return client.post("/lightpush/v1/message", json={"pubsubTopic": SHARD, "message": message})

    assert push().status_code == 200
    refused = push()
    # As a go-waku 0.10.0 said it.
    assert (refused.status_code, refused.text) == (503, "lightpush errorexceeds the rate limit")
    wait_until(lambda: push().status_code == 200, timeout=60, interval=0.2, what="a second later")


def test_unsubscribing_what_is_unknown(client):
    recording = recordings.load(AREA, "filter-unsubscribe-unknown")
    answer = send(client, recording)
    assert answer.status_code == 200
    assert answer.json()["statusDesc"].startswith("can't unsubscribe from ")
    assert recording.answer["statusDesc"].startswith("can't unsubscribe from ")


def test_too_big(client):
    recording = recordings.load(AREA, "lightpush-v1-too-big")
    message = {"payload": base64.b64encode(bytes(200_000)).decode(), "contentTopic": TOPIC}
    answer = client.post("/lightpush/v1/message", json={"pubsubTopic": SHARD, "message": message})
    assert (answer.status_code, answer.text) == (recording.status, recording.answer)


# --- nodes as peers ---


def test_peers_hand_over_what_is_published(serve):
    nodes = [DevelopmentNode(NodeSettings(shards=(SHARD,))), GoWakuNode(NodeSettings(shards=(SHARD, OTHER)))]
    first, second = serve(nwaku_manners.create_app(nodes[0])), serve(go_waku.create_app(nodes[1]))
    for one, other in ((first, second), (second, first)):
        one.post("/dev/peers", json={"url": str(other.base_url).rstrip("/")}).raise_for_status()
    for client, shard in ((first, SHARD), (second, SHARD), (second, OTHER)):
        message = {"payload": "aGk=", "contentTopic": TOPIC, "version": 1, "timestamp": time.time_ns()}
        client.post(f"/relay/v1/messages/{quoted(shard)}", json=message).raise_for_status()
    wait_until(lambda: [node.counters["published"] for node in nodes] == [2, 3], timeout=60, what="both have all")
    assert nodes[0].read(OTHER) is None
