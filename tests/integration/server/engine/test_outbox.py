"""Answers on their way out: published once the node has taken them, by whom they were made or by the schedule."""

import time

import httpx2
import pytest
from structlog.testing import capture_logs

from support.served import SHARD
from wakupush.devnet import messages
from wakupush.devnet.conversation import open_reply
from wakupush.devnet.processes import wait_until
from wakupush.model.entries import SealedAnswer
from wakupush.model.queues import QUERY, REGISTRATION
from wakupush.pb.push_notification_pb2 import PushNotificationQueryResponse
from wakupush.protocol import application, payload, segments
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import left_out
from wakupush.runtime.connections.redis import open_redis
from wakupush.server.beat.answers import publish_overdue
from wakupush.server.engine.outbox import Outbox


def test_refused_answers_are_logged_together(open_server):
    server = open_server(waku={"url": "http://127.0.0.1:1"})
    answers = [
        (number, SealedAnswer(pubsub_topic=SHARD, content_topic="/waku/1/0x00000001/rfc26", payload=b"", trace_id="t"))
        for number in range(20)
    ]
    with capture_logs() as logs:
        server.context.outbox.publish(answers)
    log_events = [(log["event"], log["answers"]) for log in logs if log["log_level"] != "debug"]
    assert log_events == [("answers_not_published", 20)]


def test_too_large_an_answer_is_sent_in_segments(open_server, client):
    server = open_server(waku={"max_message_bytes": 10_000}, worker={"repeat_answers_after": 0.5})
    user = PrivateKey.generate()
    server.register(user, allow_from_contacts_only=True, allowed_key_list=[bytes([n]) * 64 for n in range(200)])
    server.handle(QUERY, messages.query(client, user.public_key.key_hash))
    parts = [
        payload.open_asymmetric(node_message.message.payload, client) for node_message in server.observer.messages()
    ]
    assert len(parts) == 2
    assert {part.signer for part in parts} == {server.key}
    whole = segments.join([segments.parse(part.data) for part in parts])
    [info] = PushNotificationQueryResponse.FromString(application.unwrap(whole).inner).info
    assert len(info.allowed_key_list) == 200
    assert server.repeated == []  # it would leave as often as it has parts


def test_the_schedule_publishes_what_a_worker_left(server, client, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "publish", lambda *_: None)
        content = messages.registration(client, server.key)
        server.handle(REGISTRATION, messages.register(client, server.key, content))
    assert publish_overdue(server.context) == 0  # still held for the worker
    server.rows("UPDATE answers SET publish_at = now() RETURNING 1")
    assert publish_overdue(server.context) == 1
    assert server.outcomes(client) == ["success"]
    assert server.rows("SELECT count(*) FROM answers") == [(0,)]


def test_answers_to_ephemeral_keys_are_published_twice_if_set(open_server, client):
    server = open_server(worker={"repeat_answers_after": 0.5})
    asker = PrivateKey.generate()
    server.register(client)
    assert server.repeated == []  # the key stays, so once
    server.handle(QUERY, messages.query(asker, client.public_key.key_hash))
    first, again = [
        node_message.message for node_message in server.observer.messages() if open_reply(node_message.message, [asker])
    ]
    assert server.repeated == pytest.approx([0.5], abs=0.4)
    assert (again.payload, again.content_topic) == (first.payload, first.content_topic)
    assert again.timestamp > first.timestamp  # or gossip would drop it
    assert server.rows("SELECT count(*) FROM answers") == [(0,)]


def test_late_repeats_are_left_out(server):
    topic, now = "/waku/1/0x00000001/rfc26", time.monotonic()
    answers = [
        SealedAnswer(pubsub_topic=SHARD, content_topic=topic, payload=name, trace_id="t") for name in (b"late", b"due")
    ]
    server.context.outbox.repeat([(now - 2, answers[0]), (now, answers[1])])
    assert [node_message.message.payload for node_message in server.observer.messages()] == [b"due"]


def test_an_answer_outlives_a_node_without_peers(server, client):
    """Such a nwaku says 200, and nobody gets the answer."""
    [name] = server.context.settings.waku.nodes
    left_out.write_without_peers(server.context.redis, name, [SHARD])
    server.handle(REGISTRATION, messages.register(client, server.key, messages.registration(client, server.key)))
    assert server.rows("SELECT count(*) FROM answers") == [(1,)]
    left_out.write_without_peers(server.context.redis, name, [])
    server.rows("UPDATE answers SET publish_at = now() RETURNING 1")

    def is_published():
        publish_overdue(server.context)
        return server.rows("SELECT count(*) FROM answers") == [(0,)]

    wait_until(is_published, timeout=60, interval=0.5, what="the answer is published")
    assert set(server.outcomes(client)) == {"success"}


def test_a_node_stays_left_out_while_redis_hangs(server, monkeypatch):
    redis = server.context.redis
    left_out.write_without_peers(redis, "node", [SHARD])
    impatient = open_redis(server.context.settings.redis.model_copy(update={"timeout": 0.1}))
    excluded = left_out.ExcludedNodes(impatient, ["node"])
    monkeypatch.setattr(left_out, "EXCLUDED_SECONDS", 0.0)
    assert excluded.without_peers(SHARD) == {"node"}
    redis.client_pause(500)
    with capture_logs() as logs:
        assert excluded.without_peers(SHARD) == {"node"}
        monkeypatch.setattr(left_out, "HOLDS_SECONDS", 0)
        assert excluded.without_peers(SHARD) == set()
    assert [line["event"] for line in logs] == ["left_out_not_read"] * 2


def test_what_no_node_took_is_left_to_the_schedule(open_server, client, node):
    server = open_server(worker={"repeat_answers_after": 0.5})
    server.register(client)
    httpx2.post(f"{node}/dev/faults", json={"kind": "status", "status": 503, "method": "POST"}).raise_for_status()
    server.handle(QUERY, messages.query(PrivateKey.generate(), client.public_key.key_hash))
    httpx2.delete(f"{node}/dev/faults").raise_for_status()
    assert server.repeated == []
    assert server.rows("SELECT count(*) FROM answers") == [(1,)]
