"""The use cases, called directly, on a real Postgres, Redis, node and gorush."""

import json
import time
from base64 import b64decode
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx2
import psycopg
import pytest
from structlog.testing import capture_logs

from support.served import SHARD, count_watched, in_segments, request, rewrapped
from wakupush.devnet.demo import messages
from wakupush.devnet.demo.conversation import open_reply
from wakupush.devnet.parts.processes import wait_until
from wakupush.model.answers import SealedAnswer
from wakupush.model.platforms import Platform
from wakupush.model.queues import DISPATCH, QUERY, QUEUES, REGISTRATION
from wakupush.pb.push_notification_pb2 import (
    PushNotification,
    PushNotificationQueryResponse,
    PushNotificationRegistration,
)
from wakupush.protocol import application, payload, segments, topics
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import watched
from wakupush.server import outbox
from wakupush.server.delivery import attempt, lanes, next_attempts
from wakupush.server.delivery.posting import Attempted
from wakupush.server.inbox import steps
from wakupush.server.schedule.claim_due import claim_due
from wakupush.server.schedule.enqueue_waiting import enqueue_waiting
from wakupush.server.schedule.expire_segments import expire_segments
from wakupush.server.schedule.fill_watched_topics import fill_watched_topics
from wakupush.server.schedule.prune import prune
from wakupush.server.schedule.publish_overdue import publish_overdue


def waiting(server, queue):
    """Return the payloads and the keyword arguments of the tasks of a queue."""
    tasks = [json.loads(raw) for raw in server.context.redis.lrange(queue.name, 0, -1)]
    bodies = [json.loads(b64decode(task["body"])) for task in tasks]
    return [([b64decode(entry["payload"]) for entry in entries], named) for (entries,), named, _ in bodies]


# Publishing


def test_answers_that_the_node_does_not_take_are_told_of_together(open_server):
    server = open_server(waku={"url": "http://127.0.0.1:1"})
    answers = [
        (number, SealedAnswer(pubsub_topic=SHARD, content_topic="/waku/1/0x00000001/rfc26", payload=b"", trace_id="t"))
        for number in range(20)
    ]
    with capture_logs() as logs:
        outbox.publish(server.context, answers)
    told = [(log["event"], log["answers"]) for log in logs if log["log_level"] != "debug"]
    assert told == [("answers_not_published", 20)]


# Registrations


def test_the_topics_are_watched_before_the_answer_leaves(server, client, monkeypatch):
    watching = []
    monkeypatch.setattr(outbox, "publish", lambda context, _, **__: watching.append(count_watched(context.redis)))
    content = messages.registration(client, server.key)
    server.handle(REGISTRATION, messages.register(client, server.key, content))
    assert watching == [2]
    names = topics.query_topics(client.public_key.key_hash)
    assert watched.among(server.context.redis, [topics.topic(name) for name in names]) == set(map(topics.topic, names))


def test_a_repeat_is_answered_again_but_not_for_ever_and_heals_the_watched_topics(server, client):
    sent = messages.register(client, server.key, messages.registration(client, server.key))
    server.handle(REGISTRATION, sent)
    server.context.redis.delete(watched.KEY)
    for _ in range(5):
        server.handle(REGISTRATION, rewrapped(sent, server))
    assert server.outcomes(client) == ["success"] * 4
    assert count_watched(server.context.redis) == 2
    assert ("repeated_too_often", None) in server.events("refused")


def test_a_transaction_that_is_repeated_counts_for_limits_once(open_server, client, monkeypatch):
    server = open_server(limits={"pushes_per_device_per_minute": 2, "answer_bytes_per_user_per_minute": 1000})
    collisions = []

    def collide(*arguments, **named):
        collisions.append(arguments)
        if len(collisions) % 4:
            raise psycopg.errors.SerializationFailure
        return write(*arguments, **named)

    write = steps.write
    monkeypatch.setattr(steps, "write", collide)
    registering = messages.register(client, server.key, content := messages.registration(client, server.key))
    asking = messages.request(client, server.key, [messages.notification(client.public_key.key_hash, content)] * 2)
    for queue, sent in ((REGISTRATION, registering), (DISPATCH, asking)):
        for _ in range(2):
            server.handle(queue, rewrapped(sent, server))
    server.derive()
    for _ in range(2):
        server.handle(QUERY, messages.query(client, client.public_key.key_hash))
    assert len(collisions) == 6 * 4
    assert server.events("refused") == []
    assert server.rows("SELECT count(*) FROM waiting_queries") == [(0,)]
    assert server.rows("SELECT count(*) FROM deliveries WHERE length(message) = 0") == [(0,)]


def test_the_same_envelope_is_answered_once(server, client):
    sent = messages.register(client, server.key, messages.registration(client, server.key))
    server.handle(REGISTRATION, sent, sent)
    server.handle(REGISTRATION, sent)
    assert server.outcomes(client) == ["success"]


def test_versions_within_a_batch_count_in_their_order(server, client):
    make = partial(messages.registration, client, server.key, installation_id="3f4a7c02-11a9-496c-a63a-54582dca8cef")
    versions = [make(version=version, device_token=f"token-{version}") for version in (2, 1, 3)]
    server.handle(REGISTRATION, *(messages.register(client, server.key, each) for each in versions))
    assert sorted(server.outcomes(client)) == ["VERSION_MISMATCH", "success", "success"]
    assert server.rows("SELECT version FROM registrations") == [(3,)]
    assert [device.device_token for device in server.devices()] == ["token-3"]


def test_installations_per_key_are_limited(open_server, client):
    server = open_server(limits={"installations_per_key": 2})
    contents = [messages.registration(client, server.key) for _ in range(3)]
    server.handle(REGISTRATION, *(messages.register(client, server.key, content) for content in contents))
    assert sorted(server.outcomes(client)) == ["INTERNAL_ERROR", "success", "success"]
    gone = PushNotificationRegistration(unregister=True, version=2, installation_id=contents[0].installation_id)
    server.handle(REGISTRATION, messages.register(client, server.key, gone))
    server.handle(REGISTRATION, messages.register(client, server.key, contents[2]))
    assert server.outcomes(client) == ["success", "success"]


def test_first_registrations_an_hour_are_limited_and_further_ones_are_not(open_server, client):
    server = open_server(limits={"first_registrations_per_hour": 1})
    content = server.register(client)
    other = PrivateKey.generate()
    server.handle(REGISTRATION, messages.register(other, server.key, messages.registration(other, server.key)))
    again = messages.registration(client, server.key, version=2, installation_id=content.installation_id)
    server.handle(REGISTRATION, messages.register(client, server.key, again))
    assert sorted(server.outcomes(client, other)) == ["INTERNAL_ERROR", "success"]


def test_two_workers_with_the_same_batch_answer_each_message_once(server):
    clients = [PrivateKey.generate() for _ in range(20)]
    sent = [messages.register(one, server.key, messages.registration(one, server.key)) for one in clients]
    submit = server.threads.submit
    with_two = [submit(server.handle, REGISTRATION, *part) for part in (sent, sent[::-1])]
    for future in with_two:
        future.result()
    assert server.outcomes(*clients) == ["success"] * 20


# Queries


def test_users_whose_topics_collide_are_told_apart(server, client):
    users = [PrivateKey.generate() for _ in range(2)]
    for user in users:
        server.register(user)
    server.rows("UPDATE query_topics SET topic = '\\x11223344' RETURNING 1")
    for user in users:
        sent = replace(messages.query(client, user.public_key.key_hash), content_topic="/waku/1/0x11223344/rfc26")
        server.handle(QUERY, sent)
        [reply] = server.answers(client)
        [info] = PushNotificationQueryResponse.FromString(reply.inner).info
        assert info.public_key == user.public_key.key_hash


def test_both_spellings_of_the_query_topic_are_answered(server, client):
    user = PrivateKey.generate()
    server.register(user)
    name = topics.query_topics(user.public_key.key_hash)[1]
    plain = messages.query(client, user.public_key.key_hash)
    data = payload.open_symmetric(plain.payload, topics.symmetric_key(name.removeprefix("0x"))).data
    prefixed = replace(
        plain,
        payload=payload.seal_symmetric(data, topics.symmetric_key(name), client),
        content_topic=topics.content_topic(name),
    )
    server.handle(QUERY, plain, prefixed)
    assert len(server.answers(client)) == 1
    server.derive()
    assert enqueue_waiting(server.context) == 1
    server.handle_enqueued(QUERY)
    assert len(server.answers(client)) == 1


def test_too_many_keys_and_other_kinds_of_messages_are_met_by_silence(server, client):
    user = PrivateKey.generate()
    content = server.register(user)
    name, _ = topics.query_topics(user.public_key.key_hash)
    key = topics.symmetric_key(name)
    many = messages.query(client, user.public_key.key_hash, *[bytes(64)] * 1000)
    stray = request(user, server, content)
    data = payload.open_asymmetric(stray.payload, server.context.identity.private_key).data
    stray = replace(many, payload=payload.seal_symmetric(data, key, client))
    server.handle(QUERY, many, stray, replace(many, payload=b"garbage"), replace(many, version=2, timestamp=2))
    assert server.answers(client) == []
    assert sorted(server.events("refused")) == [("query_limit", None)] * 2 + [("type_unsupported", None)]
    assert server.events("foreign") == [("not_for_us", None)]


# Push requests


def test_a_request_that_comes_again_pushes_once_and_is_answered_alike(server, client):
    content = server.register(client)
    sent = request(client, server, content)
    server.handle(DISPATCH, sent)
    for _ in range(5):
        server.handle(DISPATCH, rewrapped(sent, server))
    assert server.outcomes(client) == [["success"]] * 4
    assert len(server.pushes()) == 1


def test_only_success_is_remembered(server, client):
    content = messages.registration(client, server.key)
    sent = request(client, server, content)
    server.handle(DISPATCH, sent)
    server.handle(REGISTRATION, messages.register(client, server.key, content))
    server.handle(DISPATCH, sent)
    server.handle(DISPATCH, rewrapped(sent, server))
    assert server.outcomes(client) == [["NOT_REGISTERED"], "success", ["success"]]
    assert len(server.pushes()) == 1


def test_after_an_internal_error_a_new_envelope_may_push(server, client):
    content = server.register(client, device_token="bad-then-good")
    sent = request(client, server, content)
    server.handle(DISPATCH, sent)
    assert server.outcomes(client) == [["INTERNAL_ERROR"]]
    server.reroute("good")
    server.handle(DISPATCH, sent)
    assert claim_due(server.context) == 0
    server.handle(DISPATCH, rewrapped(sent, server))
    assert server.outcomes(client) == [["success"]]
    assert [push.outcome for push in server.pushes()] == ["BadDeviceToken", "delivered"]


def test_an_old_request_is_neither_pushed_nor_answered(server, client):
    content = server.register(client)
    server.handle(DISPATCH, request(client, server, content), seen=time.time() - 700)
    assert (server.answers(client), server.pushes()) == ([], [])
    assert server.events("expired") == [("request_expired", None)]


def test_more_items_than_allowed_are_refused_each(open_server, client):
    server = open_server(limits={"request_items": 100})
    content = server.register(client)
    items = [messages.notification(client.public_key.key_hash, content) for _ in range(101)]
    server.handle(DISPATCH, messages.request(client, server.key, items))
    assert server.outcomes(client) == [["INTERNAL_ERROR"] * 100]
    assert server.pushes() == []


def test_more_items_than_gorush_takes_go_out_in_several_posts(open_server, client):
    server = open_server(limits={"pushes_per_device_per_minute": 130})
    content = server.register(client)
    items = [messages.notification(client.public_key.key_hash, content) for _ in range(130)]
    server.handle(DISPATCH, messages.request(client, server.key, items))
    assert server.outcomes(client) == [["success"] * 130]
    wait_until(
        lambda: server.rows("SELECT DISTINCT state FROM deliveries") == [("delivered",)], timeout=60, what="posts end"
    )
    assert len(server.pushes()) == 130


def test_what_finds_no_free_slot_waits_for_the_schedule(server, client):
    content = server.register(client)
    assert server.context.lanes.slots.reserve(Platform.IOS, 9) == 1
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["success"]]
    assert server.rows("SELECT state, attempt FROM deliveries") == [("pending", 0)]
    server.context.lanes.slots.submit(Platform.IOS, lambda: None)
    [(key,)] = server.rows("UPDATE deliveries SET next_attempt_at = now() RETURNING delivery_key")
    assert claim_due(server.context) == 1
    next_attempts.make(server.context, {key: 0}, "")
    assert server.rows("SELECT state, attempt FROM deliveries") == [("delivered", 1)]


def test_a_fault_of_ours_in_a_post_is_logged_and_the_posts_after_it_are_put_back(open_server, client, gorush):
    server = open_server(gorush={"url": gorush, "concurrency": 2, "batch_size": 1})
    content = server.register(client)

    def fail(_):
        raise LookupError("ours")

    server.context.gorush.post = fail
    with capture_logs() as logs:
        server.handle(DISPATCH, *(request(client, server, content) for _ in range(3)))
    assert [(line["deliveries"], line["put_back"]) for line in logs if line["event"] == "post_failed"] == [(1, 2)]
    assert sorted(server.rows("SELECT state, attempt FROM deliveries")) == [
        ("pending", 0),
        ("pending", 0),
        ("posting", 1),
    ]
    assert server.outcomes(client) == [["success"]] * 3
    assert server.context.lanes.slots.reserve(Platform.IOS, 9) == 1


def test_a_backlog_leaves_slots_to_new_requests(open_server, client, gorush, monkeypatch):
    monkeypatch.setattr(next_attempts, "WAIT_SECONDS", 0.0)
    server = open_server(gorush={"url": gorush, "concurrency": 8, "batch_size": 1})
    slow, quick = (server.register(client, device_token=token) for token in ("slow-3000", "phone"))
    assert server.context.lanes.slots.reserve(Platform.IOS, 9) == 4
    server.handle(DISPATCH, *(request(client, server, slow) for _ in range(8)))
    server.context.lanes.slots.release(Platform.IOS, 4)
    due = is_due(server)
    assert len(due) == 8
    for part in (dict(list(due.items())[:4]), dict(list(due.items())[4:])):  # the second task finds no slot
        next_attempts.make(server.context, part, "")
    assert server.rows("SELECT state, count(*) FROM deliveries GROUP BY 1 ORDER BY 1") == [
        ("pending", 4),
        ("posting", 4),
    ]
    server.handle(DISPATCH, request(client, server, quick))
    assert [push.notification["tokens"] for push in server.pushes()] == [["phone"]]


def test_the_same_message_twice_in_a_batch_gets_the_same_answer_twice(server, client):
    content = server.register(client, device_token="dead-phone")
    sent = request(client, server, content)
    server.handle(DISPATCH, sent, rewrapped(sent, server))
    assert server.outcomes(client) == [["NOT_REGISTERED"], ["NOT_REGISTERED"]]
    assert len(server.pushes()) == 1
    told = [failure for failure, _ in server.events("answered")]
    assert told[-2:] == ["token_unregistered", "token_unregistered"]


def test_a_message_of_another_kind_is_passed_on(server, client):
    content = messages.registration(client, server.key)
    server.handle(DISPATCH, messages.register(client, server.key, content))
    assert server.context.redis.llen(REGISTRATION.name) == 1
    assert server.rows("SELECT count(*) FROM ledger") == [(0,)]
    assert server.answers(client) == []


def test_unregistering_ends_what_is_on_its_way(server, client):
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content))
    assert server.rows("SELECT state FROM deliveries") == [("pending",)]
    gone = PushNotificationRegistration(unregister=True, version=2, installation_id=content.installation_id)
    server.handle(REGISTRATION, messages.register(client, server.key, gone))
    assert server.rows("SELECT count(*) FROM deliveries") == [(0,)]


# Deliveries


def is_due(server):
    """Make everything due that waits, and return what the schedule claims, as `deliver` takes it."""
    rows = server.rows("UPDATE deliveries SET next_attempt_at = now() WHERE state = 'pending' RETURNING delivery_key")
    assert rows
    return dict(server.rows("SELECT delivery_key, attempt FROM deliveries WHERE state = 'pending'"))


def fault(gorush, **fields):
    httpx2.post(f"{gorush}/dev/faults", json={"path": "/api/push", **fields}).raise_for_status()


def android(client, server):
    return server.register(
        client, token_type=PushNotificationRegistration.FIREBASE_TOKEN, apn_topic="", device_token="android"
    )


def test_a_gorush_that_is_down_uses_up_no_attempts_and_its_senders_are_told_of_success(open_server, client, gorush):
    server = open_server(breaker={"faults": 2}, delivery={"max_attempts": 3})
    content = server.register(client)
    fault(gorush, kind="status", status=503)
    for _ in range(2):
        server.handle(DISPATCH, request(client, server, content))
    assert server.rows("SELECT DISTINCT attempt, failure FROM deliveries") == [(1, "gorush_failed")]
    server.rows("DELETE FROM deliveries RETURNING 1")
    for _ in range(3):
        server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["success"]] * 5
    assert server.rows("SELECT state, attempt, failure FROM deliveries") == [("pending", 0, None)] * 3
    server.rows("UPDATE deliveries SET next_attempt_at = now() RETURNING 1")
    assert claim_due(server.context) == 0


def test_probes_bring_the_deliveries_back_and_those_that_fail_count_no_attempt(open_server, client, gorush):
    server = open_server(breaker={"faults": 1, "probes": 2}, gorush={"url": gorush, "concurrency": 8})
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content))
    assert not server.context.breaker.is_closed(Platform.IOS)
    for _ in range(3):
        server.handle(DISPATCH, request(client, server, content))
    assert sorted(server.rows("SELECT attempt, failure FROM deliveries WHERE attempt = 0")) == [(0, None)] * 3
    for device_token, left in (("unavailable", 4), ("works", 2)):
        server.reroute(device_token)
        server.rows("UPDATE deliveries SET next_attempt_at = now() RETURNING 1")
        assert server.context.redis.delete("wakupush:breaker:ios:open")  # the pause is over
        wait_until(
            lambda: server.context.breaker.claimable(Platform.IOS, 9) == 2, timeout=60, what="what was read is too old"
        )
        due = dict(server.rows("SELECT delivery_key, attempt FROM deliveries WHERE state = 'pending'"))
        next_attempts.make(server.context, due, "")
        [(pending,)] = server.rows("SELECT count(*) FROM deliveries WHERE state = 'pending'")
        assert pending == left
        assert server.context.breaker.is_closed(Platform.IOS) == (device_token == "works")
    # One post of those before the breaker opened, two probes that failed, two that got through.
    assert [push.outcome for push in server.pushes()] == ["ServiceUnavailable"] * 3 + ["delivered"] * 2
    assert min(server.rows("SELECT attempt FROM deliveries WHERE state = 'pending'")) == (0,)
    server.rows("UPDATE deliveries SET next_attempt_at = now() WHERE state = 'pending' RETURNING 1")
    assert claim_due(server.context) == 2


def test_a_dead_firebase_does_not_stop_ios(open_server, gorush):
    server = open_server(gorush={"url": gorush, "timeout": 3, "concurrency": 2}, breaker={"faults": 1})
    apple, google = PrivateKey.generate(), PrivateKey.generate()
    of_apple, of_google = server.register(apple), android(google, server)
    server.reroute("unreachable", platform=Platform.ANDROID)
    for _ in range(3):
        server.handle(DISPATCH, request(google, server, of_google), request(apple, server, of_apple))
    assert server.rows("SELECT platform, state, count(*) FROM deliveries GROUP BY 1, 2 ORDER BY 1") == [
        (1, "delivered", 3),
        (2, "pending", 3),
    ]
    assert len([push for push in server.pushes() if push.notification["platform"] == 2]) == 1


@pytest.mark.parametrize("status", [400, 413, 422])
def test_one_bad_notification_never_takes_its_neighbours_along(server, gorush, status):
    contents = {client: server.register(client) for client in (PrivateKey.generate() for _ in range(4))}
    fault(gorush, kind="status", status=status, times=2)  # the post of all, and the first of those by itself
    server.handle(DISPATCH, *(request(client, server, content) for client, content in contents.items()))
    assert sorted(server.outcomes(*contents)) == [["INTERNAL_ERROR"]] + [["success"]] * 3
    assert sorted(server.rows("SELECT state, failure, attempt FROM deliveries")) == [
        *[("delivered", None, 1)] * 3,
        ("failed", "gorush_refused", 1),
    ]
    assert len(server.pushes()) == 3, "nothing of the post of all was taken"


def test_a_device_whose_notification_spoils_a_post_does_so_once(server):
    tokens = ("malformed-1", "works-2", "works-3", "works-4")
    clients = {PrivateKey.generate(): device_token for device_token in tokens}
    contents = {client: server.register(client, device_token=token) for client, token in clients.items()}
    for _ in range(2):
        server.handle(DISPATCH, *(request(client, server, content) for client, content in contents.items()))
    sizes = dict(server.rows("SELECT batch_size, count(*) FROM delivery_history WHERE kind = 'attempt' GROUP BY 1"))
    assert sizes == {1: 4 + 1, 3: 3}


def test_what_is_posted_one_by_one_after_a_refusal_keeps_to_its_lease(open_server, gorush):
    server = open_server(delivery={"lease": 30, "max_attempts": 2}, gorush={"url": gorush, "concurrency": 2})
    contents = {client: server.register(client) for client in (PrivateKey.generate() for _ in range(3))}
    fault(gorush, kind="status", status=413, times=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wakupush.runtime.settings.STORE_SECONDS", 30.0)  # no time is left for a second post
        server.handle(DISPATCH, *(request(client, server, content) for client, content in contents.items()))
    assert server.outcomes(*contents) == [["success"]] * 3
    assert server.rows("SELECT state, attempt FROM deliveries") == [("pending", 0)] * 3, "without an attempt"
    fault(gorush, kind="status", status=413, times=1)
    next_attempts.make(server.context, {key: 0 for (key,) in server.rows("SELECT delivery_key FROM deliveries")}, "")
    wait_until(lambda: not server.rows("SELECT FROM deliveries WHERE state = 'posting'"), timeout=60, what="posts end")
    assert server.rows("SELECT count(*) FROM deliveries WHERE state = 'failed'") == [(1,)], "then they go one by one"


def test_slots_that_all_hang_open_the_breaker(open_server, client, monkeypatch):
    monkeypatch.setattr(lanes, "HANG_SECONDS", 0.1)
    server = open_server(worker={"answer_within": 0.1})
    content = server.register(client, device_token="slow-1500")
    server.handle(DISPATCH, request(client, server, content))
    wait_until(lambda: server.context.lanes.slots.hang(Platform.IOS, 0.1), timeout=60, what="the only slot hangs")
    server.handle(DISPATCH, request(client, server, content))
    assert not server.context.breaker.is_closed(Platform.IOS)
    # The post that hung got through all the same.
    wait_until(lambda: server.context.breaker.is_closed(Platform.IOS), timeout=60, what="the breaker is closed")


def test_the_answer_does_not_wait_for_a_clock_that_is_ahead(open_server, client):
    server = open_server(worker={"answer_within": 0.2}, gorush={"timeout": 12})
    content = server.register(client, device_token="slow-5000")
    server.handle(DISPATCH, request(client, server, content), seen=time.time() + 30)
    assert server.rows("SELECT state FROM deliveries") == [("posting",)]
    assert server.outcomes(client) == [["success"]]


def test_slots_that_are_busy_do_not_open_the_breaker(server, client):
    content = server.register(client)
    assert server.context.lanes.slots.reserve(Platform.IOS, 9) == 1
    server.context.lanes.slots.submit(Platform.IOS, lambda: server.context.lanes.slots.begin(Platform.IOS)).result()
    assert server.context.lanes.slots.reserve(Platform.IOS, 9) == 1
    server.handle(DISPATCH, request(client, server, content))
    assert server.context.breaker.is_closed(Platform.IOS)
    server.context.lanes.slots.release(Platform.IOS, 1)


def test_a_device_that_registered_anew_gets_the_next_attempt_at_its_new_token(server, client):
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["success"]]
    server.register(client, version=2, installation_id=content.installation_id, device_token="new-token")
    next_attempts.make(server.context, is_due(server), "")
    assert [push.notification["tokens"] for push in server.pushes()] == [["unavailable"], ["new-token"]]
    assert server.rows("SELECT state, attempt, version FROM deliveries") == [("delivered", 2, 2)]


def test_a_device_whose_token_died_meanwhile_is_not_posted_to(server, client):
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content))
    server.rows("UPDATE registrations SET token_died_at = now() RETURNING 1")
    server.context.breaker.open(Platform.IOS)  # which says nothing about who need not be posted to
    next_attempts.make(server.context, is_due(server), "")
    assert server.rows("SELECT state, failure FROM deliveries") == [("failed", "device_gone")]
    assert len(server.pushes()) == 1


def test_nothing_permanent_is_tried_again(server, client):
    contents = [server.register(client, device_token=token) for token in ("dead", "bad", "expired", "topic")]
    server.handle(DISPATCH, *(request(client, server, content) for content in contents))
    assert server.rows("SELECT DISTINCT state FROM deliveries") == [("failed",)]
    assert claim_due(server.context) == 0


def test_the_next_attempt_is_not_before_gorush_asked_for(open_server, client, throttling_proxy):
    server = open_server(gorush={"url": throttling_proxy}, delivery={"max_wait": 300, "slow_first_wait": 0.01})
    content = server.register(client)
    server.handle(DISPATCH, request(client, server, content))
    [(failure, wait)] = server.rows(
        "SELECT failure, extract(epoch FROM next_attempt_at - now())::float8 FROM deliveries"
    )
    assert failure == "gorush_throttled"
    assert 100 < wait <= 120.1


@pytest.fixture
def throttling_proxy():
    """URL of a proxy before gorush that asks everybody to wait for two minutes."""

    class Throttle(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(429)
            self.send_header("Retry-After", "120")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Throttle) as proxy:
        thread = Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{proxy.server_port}"
        proxy.shutdown()
        thread.join()


def test_each_type_of_notification_has_its_time_to_live(open_server, client):
    server = open_server(
        delivery={"message_time_to_live": 100, "mention_time_to_live": 200, "join_request_time_to_live": 300}
    )
    chat_id = bytes(64)
    content = server.register(client, allowed_mentions_chat_list=[chat_id])
    for kind in (PushNotification.MESSAGE, PushNotification.MENTION, PushNotification.REQUEST_TO_JOIN_COMMUNITY):
        server.handle(DISPATCH, request(client, server, content, type=kind, chat_id=chat_id))
    rows = server.rows(
        "SELECT notification_type, extract(epoch FROM expires_at - seen_at)::float8 FROM deliveries ORDER BY 1"
    )
    assert [(kind, round(seconds, -2)) for kind, seconds in rows] == [(1, 100), (2, 200), (3, 300)]


def contacts(count: int) -> dict:
    """Return the fields of a registration that lets these many contacts push: an answer shows 68 bytes of each."""
    return {"allow_from_contacts_only": True, "allowed_key_list": [bytes(64)] * count}


def test_answers_to_queries_are_limited(open_server, client):
    """Also where what is known was stored under other limits, and by however many devices."""
    server = open_server(limits={"answer_bytes": 20_000, "registration_bytes": 20_000})
    several, one = PrivateKey.generate(), PrivateKey.generate()
    for _ in range(3):
        server.register(several, **contacts(100))
    server.register(one, **contacts(200))
    for keys in ((several,), (one, several), (one,)):
        server.handle(QUERY, messages.query(client, *(key.public_key.key_hash for key in keys)))
    [reply] = server.answers(client)
    [info] = PushNotificationQueryResponse.FromString(reply.inner).info
    assert info.public_key == one.public_key.key_hash
    assert server.events("refused") == [("query_limit", None)] * 2


def test_of_queries_whose_answers_are_too_large_together_the_rest_waits_its_turn(open_server, client):
    server = open_server(worker={"bytes_per_task": 20_000})
    user = PrivateKey.generate()
    server.register(user, **contacts(200))
    sent = [messages.query(client, user.public_key.key_hash) for _ in range(3)]
    server.handle(QUERY, sent[0])
    assert len(server.answers(client)) == 1
    with capture_logs() as logs:
        server.handle(QUERY, *sent[1:])
    assert [(log["messages"], log["later"]) for log in logs if log["event"] == "task_cut"] == [(2, 1)]
    assert len(server.answers(client)) == 1
    assert waiting(server, QUERY) == [([sent[2].payload], {})]  # not alone: it is not to blame
    server.handle(QUERY, sent[2])
    assert len(server.answers(client)) == 1


# Segments


@pytest.mark.parametrize("signed", [True, False])
def test_a_message_in_segments_is_handled_once_it_is_complete(server, client, signed):
    sent = messages.register(client, server.key, messages.registration(client, server.key))
    parts = in_segments(sent, server, 100, client if signed else None)
    assert len(parts) > 3
    server.handle(REGISTRATION, *parts[1:], parts[1])
    assert server.outcomes(client) == []
    assert server.rows("SELECT count(*) FROM message_segments") == [(len(parts) - 1,)]
    server.handle(REGISTRATION, parts[0])
    assert server.outcomes(client) == ["success"]
    assert server.rows("SELECT count(*) FROM message_segments") == [(0,)]
    server.handle(REGISTRATION, *parts)
    assert server.outcomes(client) == []
    assert server.rows("SELECT count(*) FROM message_segments") == [(0,)]


def test_segments_of_a_message_for_another_queue_are_handled_there(server, client):
    sent = messages.register(client, server.key, messages.registration(client, server.key))
    parts = in_segments(sent, server, 200, client)
    server.handle(DISPATCH, *parts)
    assert server.context.redis.llen(REGISTRATION.name) == 1
    server.handle(REGISTRATION, parts[-1])
    assert server.outcomes(client) == ["success"]
    assert server.rows("SELECT count(*) FROM message_segments") == [(0,)]


def test_two_workers_with_half_of_the_segments_each_complete_the_message_once(server):
    clients = [PrivateKey.generate() for _ in range(10)]
    halves = ([], [])
    for client in clients:
        sent = messages.register(client, server.key, messages.registration(client, server.key))
        for position, part in enumerate(in_segments(sent, server, 100, client)):
            halves[position % 2].append(part)
    futures = [server.threads.submit(server.handle, REGISTRATION, *half) for half in halves]
    for future in futures:
        future.result()
    assert server.outcomes(*clients) == ["success"] * len(clients)


def kept(server) -> list[tuple[bytes, int]]:
    """Return signer and index of the segments that wait, the oldest first."""
    return server.rows("SELECT signer, index FROM message_segments ORDER BY received_at, signer, index DESC")


def test_segments_are_limited(open_server, client):
    """Of one message, of one signer, and of everybody; the newest stay."""
    server = open_server(limits={"segments": 20, "segments_per_signer": 3, "segments_kept": 5})
    other, third = PrivateKey.generate(), PrivateKey.generate()
    sent = messages.register(client, server.key, messages.registration(client, server.key))
    expected = []
    for signer, count in ((client, 3), (other, 5), (third, 5)):
        for part in in_segments(sent, server, 100, signer)[4:0:-1]:
            server.handle(REGISTRATION, part)
        expire_segments(server.context)
        expected = [*expected, *((signer.public_key.compressed, index) for index in (3, 2, 1))][-5:]
        assert len(expected) == count
        assert kept(server) == expected
    assert server.events("refused") == []
    server.handle(REGISTRATION, *in_segments(sent, server, 10, client)[:1])
    assert server.events("refused") == [("segment_limit", None)]
    server.rows("UPDATE message_segments SET received_at = now() - interval '1 day' RETURNING 1")
    assert expire_segments(server.context) == 5


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        # 500 bytes a part, and 28 of its seal: two parts of each signer, and three of everybody.
        ({"segment_bytes_per_signer": 1500, "segment_bytes_kept": 10_000}, (2, 4)),
        ({"segment_bytes_per_signer": 10_000, "segment_bytes_kept": 1600}, (3, 3)),
    ],
)
def test_bytes_of_segments_are_limited(limits, count, open_server, client):
    server = open_server(limits=limits)
    registrations = [messages.registration(client, server.key, apn_topic="x" * 500) for _ in range(3)]
    for signer, parts in zip((client, PrivateKey.generate()), count, strict=True):
        sent = [messages.register(client, server.key, each) for each in registrations]
        server.handle(REGISTRATION, *(in_segments(each, server, 500, signer)[0] for each in sent))
        expire_segments(server.context)
        assert len(kept(server)) == parts
    assert server.events("refused") == []
    large = messages.register(client, server.key, messages.registration(client, server.key, **contacts(200)))
    server.handle(REGISTRATION, in_segments(large, server, 500, client)[0])
    assert server.events("refused") == [("segment_limit", None)]


def test_a_flood_of_segments_does_not_keep_others_from_completing(open_server, client):
    server = open_server(limits={"segments_kept": 5})
    sent = messages.register(client, server.key, messages.registration(client, server.key))
    flood = [in_segments(sent, server, 100, PrivateKey.generate())[0] for _ in range(8)]
    server.handle(REGISTRATION, *flood[:6])
    assert expire_segments(server.context) == 1
    first, second = in_segments(sent, server, 300, client)
    server.handle(REGISTRATION, first, flood[6])
    server.handle(REGISTRATION, flood[7])
    assert expire_segments(server.context) == 3
    server.handle(REGISTRATION, second)
    assert server.outcomes(client) == ["success"]


def test_a_segment_waits_as_long_as_reconciliation_may_bring_the_others(server, client):
    sent = messages.register(client, server.key, messages.registration(client, server.key))
    first, second = in_segments(sent, server, 300, client)
    server.handle(REGISTRATION, first)
    server.rows("UPDATE message_segments SET received_at = now() - interval '23 hours' RETURNING 1")
    assert expire_segments(server.context) == 0
    server.handle(REGISTRATION, second)
    assert server.outcomes(client) == ["success"]


def test_of_segments_whose_messages_are_too_large_together_the_rest_waits_its_turn(open_server):
    server = open_server(worker={"bytes_per_task": 600})
    clients = [PrivateKey.generate() for _ in range(2)]
    sent = [messages.register(one, server.key, messages.registration(one, server.key)) for one in clients]
    halves = zip(*(in_segments(each, server, 300, one) for each, one in zip(sent, clients, strict=True)), strict=True)
    for half in halves:
        server.handle(REGISTRATION, *half)
    assert server.outcomes(*clients) == ["success"]
    assert waiting(server, REGISTRATION) == [([half[1].payload], {})]
    server.handle(REGISTRATION, half[1])
    assert server.outcomes(*clients) == ["success"]


def test_segments_that_do_not_fit_together_are_refused(server, client):
    sent = messages.register(client, server.key, messages.registration(client, server.key))
    data = payload.open_asymmetric(sent.payload, server.context.identity.private_key).data
    parts = segments.split(data, 200)
    parts[0] = parts[0].replace(b"\x0a\x41", b"\x0a\x42")
    nested = segments.split(segments.split(data, 2000)[0], 200)
    for group in (parts, nested):
        sealed = [payload.seal_asymmetric(part, server.key, client) for part in group]
        server.handle(REGISTRATION, *(replace(sent, payload=each) for each in sealed))
    assert server.events("refused") == [("payload_malformed", None)] * 2
    assert server.rows("SELECT count(*) FROM message_segments") == [(0,)]


def test_an_answer_that_is_too_large_for_the_node_is_sent_in_segments(open_server, client):
    server = open_server(waku={"max_message_bytes": 10_000})
    user = PrivateKey.generate()
    server.register(user, allow_from_contacts_only=True, allowed_key_list=[bytes([n]) * 64 for n in range(200)])
    server.handle(QUERY, messages.query(client, user.public_key.key_hash))
    parts = [payload.open_asymmetric(seen.message.payload, client) for seen in server.observer.messages()]
    assert len(parts) == 2
    assert {part.signer for part in parts} == {server.key}
    whole = segments.join([segments.parse(part.data) for part in parts])
    [info] = PushNotificationQueryResponse.FromString(application.unwrap(whole).inner).info
    assert len(info.allowed_key_list) == 200


# What is cut off is made up for


def test_answers_that_their_worker_did_not_publish_are_published_by_the_schedule(server, client, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(outbox, "publish", lambda *_, **__: None)
        content = messages.registration(client, server.key)
        server.handle(REGISTRATION, messages.register(client, server.key, content))
    assert publish_overdue(server.context) == 0  # still held for the worker
    server.rows("UPDATE answers SET publish_at = now() RETURNING 1")
    assert publish_overdue(server.context) == 1
    assert server.outcomes(client) == ["success"]
    assert server.rows("SELECT count(*) FROM answers") == [(0,)]


def test_answers_to_ephemeral_keys_are_published_once_more_where_that_is_set(open_server, client):
    server = open_server(worker={"repeat_answers_after": 0.5})
    asker = PrivateKey.generate()
    server.register(client)
    assert server.context.later.seconds == []  # the key stays, so once
    server.handle(QUERY, messages.query(asker, client.public_key.key_hash))
    first, again = [seen.message for seen in server.observer.messages() if open_reply(seen.message, [asker])]
    assert server.context.later.seconds == [0.5]
    assert (again.payload, again.content_topic) == (first.payload, first.content_topic)
    assert again.timestamp > first.timestamp  # or gossip would drop it
    assert server.rows("SELECT count(*) FROM answers") == [(0,)]


def test_what_no_node_took_is_left_to_the_schedule_and_not_repeated(open_server, client, node):
    server = open_server(worker={"repeat_answers_after": 0.5})
    server.register(client)
    httpx2.post(f"{node}/dev/faults", json={"kind": "status", "status": 503, "method": "POST"}).raise_for_status()
    server.handle(QUERY, messages.query(PrivateKey.generate(), client.public_key.key_hash))
    httpx2.delete(f"{node}/dev/faults").raise_for_status()
    assert server.context.later.seconds == []
    assert server.rows("SELECT count(*) FROM answers") == [(1,)]


def test_a_worker_that_dies_in_a_post_gives_its_deliveries_back(server, client, monkeypatch):
    content = server.register(client)
    with monkeypatch.context() as patch:
        patch.setattr(attempt, "attempt", lambda *_, **__: Attempted())
        server.handle(DISPATCH, request(client, server, content))
    assert claim_due(server.context) == 0
    server.rows("UPDATE deliveries SET lease_until = now() RETURNING 1")
    assert claim_due(server.context) == 1
    [task] = [json.loads(raw) for raw in server.context.redis.lrange(DISPATCH.name, 0, -1)]
    assert task["headers"]["argsrepr"] == "(attempt 2 of 10, 1 ios, after lease_lost)"
    [(key, task_id)] = server.rows("SELECT delivery_key, task_id FROM deliveries")
    assert task["headers"]["id"] == task_id
    next_attempts.make(server.context, {key: 0}, "")  # an attempt that is not the next one does nothing
    assert server.pushes() == []
    for _ in range(3):  # as often as the task comes
        next_attempts.make(server.context, {key: 1}, "")
    assert [push.outcome for push in server.pushes()] == ["delivered"]
    assert server.events("unknown") == [("lease_lost", None)]


def test_deliveries_expire_and_run_out_of_attempts(open_server, client):
    server = open_server(delivery={"max_attempts": 2, "first_wait": 0.01})
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content), request(client, server, content))
    keys = [key for (key,) in server.rows("UPDATE deliveries SET next_attempt_at = now() RETURNING delivery_key")]
    server.rows("UPDATE deliveries SET expires_at = now() WHERE delivery_key = %s RETURNING 1", keys[0])
    assert claim_due(server.context) == 2
    next_attempts.make(server.context, dict.fromkeys(keys, 1), "")
    assert sorted(server.rows("SELECT state, failure FROM deliveries")) == [
        ("dead_letter", "platform_unavailable"),
        ("expired", "delivery_expired"),
    ]
    assert server.events("dead_letter") == [("platform_unavailable", None)]


def test_the_schedule_fills_the_watched_topics_after_redis_was_wiped(server, client):
    server.register(client)
    server.context.redis.flushall()
    assert fill_watched_topics(server.context)
    assert count_watched(server.context.redis) == 2
    assert not fill_watched_topics(server.context)


def test_redis_is_wiped_while_the_watched_topics_are_filled(server, client, monkeypatch):
    server.register(client)
    redis = server.context.redis
    redis.flushall()
    add = watched.add
    with monkeypatch.context() as patch:
        patch.setattr(watched, "add", lambda *args, **named: add(*args, **named) or redis.flushall())
        assert fill_watched_topics(server.context)
    assert fill_watched_topics(server.context)
    assert count_watched(redis) == 2
    assert not fill_watched_topics(server.context)


def test_pruning_stops_watching_whom_nobody_can_notify(server, client):
    content = server.register(client)
    prune(server.context)
    assert count_watched(server.context.redis) == 2
    gone = PushNotificationRegistration(unregister=True, version=2, installation_id=content.installation_id)
    server.handle(REGISTRATION, messages.register(client, server.key, gone))
    prune(server.context)
    assert count_watched(server.context.redis) == 0
    assert server.rows("SELECT count(*) FROM query_topics") == [(0,)]


@pytest.mark.parametrize("days", [None, 90])
def test_pruning_takes_dead_registrations_only_where_that_is_asked_for(open_server, client, days):
    server = open_server(**({"retention": {"registrations": days * 86_400}} if days else {}))
    sent = messages.register(client, server.key, messages.registration(client, server.key))
    server.handle(REGISTRATION, sent)
    server.rows("UPDATE registrations SET token_died_at = now() - interval '91 days' RETURNING 1")
    prune(server.context)
    assert server.rows("SELECT registered, version FROM registrations") == [(days is None, 1)]
    assert count_watched(server.context.redis) == (2 if days is None else 0)
    server.handle(REGISTRATION, rewrapped(sent, server))
    assert server.outcomes(client) == ["success", "VERSION_MISMATCH"]


@pytest.mark.parametrize("queue", QUEUES.values(), ids=lambda queue: queue.name)
def test_an_outage_is_not_the_messages_fault(open_server, client, queue):
    server = open_server(postgres={"dsn": "postgresql://127.0.0.1:1/x", "timeout": 0.2})
    with pytest.raises(psycopg.OperationalError):
        server.handle(queue, messages.query(client, bytes(64)))
    with pytest.raises(psycopg.OperationalError):
        server.handle(queue, messages.query(client, bytes(64)), alone=True)


def test_garbage_on_our_topics_is_silence(server, client):
    own = messages.register(client, server.key, messages.registration(client, server.key))
    unsigned = application.ApplicationMetadataMessage(payload=b"x", type=16).SerializeToString()
    payloads = [
        b"",
        b"\x04" * 200,
        own.payload[:-1],
        payload.seal_asymmetric(b"", server.key),
        payload.seal_asymmetric(b"\xff" * 99, server.key),
        payload.seal_asymmetric(unsigned, server.key),
        payload.seal_asymmetric(application.wrap(4711, b"x", client), server.key),
        payload.seal_asymmetric(application.wrap(16, b"x", client), server.key),
        payload.seal_asymmetric(application.wrap(17, b"x", client), server.key),
    ]
    server.handle(REGISTRATION, *(replace(own, payload=each) for each in payloads))
    server.handle(DISPATCH, *(replace(own, payload=each, timestamp=1) for each in payloads))
    assert server.answers(client) == []
    assert server.rows("SELECT count(*) FROM ledger WHERE message_timestamp <> 1") == [(len(payloads),)]
    assert server.context.redis.llen(REGISTRATION.name) == 1  # the one that says it is a registration
