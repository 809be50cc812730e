"""Deliveries that are tried again, on a real Postgres, Redis and gorush: when, to which token, how often."""

import json
from base64 import b64decode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support.answering import running
from support.feedback import BUSY, body
from support.rows import IOS
from support.served import as_beat, fault, is_due, prove, request, trip
from wakupush.devnet.processes import wait_until
from wakupush.model.platforms import Platform
from wakupush.model.queues import DISPATCH
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol.keys import PrivateKey
from wakupush.server.beat.deliveries import claim_due
from wakupush.server.delivery import attempt, next_attempts, webhook
from wakupush.server.delivery.posting import Attempted
from wakupush.server.delivery.webhook import FeedbackResult


def android(client, server):
    return server.register(
        client, token_type=PushNotificationRegistration.FIREBASE_TOKEN, apn_topic="", device_token="android"
    )


def test_a_gorush_that_is_down_uses_up_no_attempts(open_server, client, gorush):
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
    assert claim_due(as_beat(server.context)) == 0


def test_failed_probes_count_no_attempt(open_server, client, gorush, monkeypatch):
    monkeypatch.setattr("wakupush.server.delivery.breaker.PROBES", 2)
    server = open_server(breaker={"faults": 1}, gorush={"url": gorush, "concurrency": 8})
    content = server.register(client)
    prove(client, server, content)
    server.reroute("unavailable")
    server.handle(DISPATCH, request(client, server, content))
    assert not server.context.posts.breaker.is_closed(IOS)
    for _ in range(3):
        server.handle(DISPATCH, request(client, server, content))
    assert sorted(server.rows("SELECT attempt, failure FROM deliveries WHERE attempt = 0")) == [(0, None)] * 3
    for device_token, expected_pending in (("unavailable", 4), ("works", 2)):
        server.reroute(device_token)
        server.rows("UPDATE deliveries SET next_attempt_at = now() RETURNING 1")
        assert server.context.redis.delete("wakupush:breaker:ios:open")  # the pause is over
        wait_until(
            lambda: server.context.posts.breaker.claimable(IOS, 9) == 2, timeout=60, what="what was read is too old"
        )
        attempts = dict(server.rows("SELECT delivery_key, attempt FROM deliveries WHERE state = 'pending'"))
        next_attempts.attempt_due(server.context, attempts, "")
        [(pending,)] = server.rows("SELECT count(*) FROM deliveries WHERE state = 'pending'")
        assert pending == expected_pending
        assert server.context.posts.breaker.is_closed(IOS) == (device_token == "works")
    # One post of those before the breaker opened, two probes that failed, two that got through.
    assert [push.outcome for push in server.pushes()] == ["ServiceUnavailable"] * 3 + ["delivered"] * 2
    assert min(server.rows("SELECT attempt FROM deliveries WHERE state = 'pending'")) == (0,)
    server.rows("UPDATE deliveries SET next_attempt_at = now() WHERE state = 'pending' RETURNING 1")
    assert claim_due(as_beat(server.context)) == 2


def test_a_notification_expires_with_its_delivery(open_server, client, gorush):
    server = open_server(gorush={"url": gorush, "dialect": "mine"}, profiles={"mine": {"text": "New"}})
    content = server.register(client)
    server.reroute("unavailable")
    server.handle(DISPATCH, request(client, server, content))
    query = "SELECT extract(epoch FROM expires_at)::float8 FROM deliveries"
    [(first,)] = server.rows(query)
    server.rows("UPDATE deliveries SET expires_at = expires_at + interval '1 hour' RETURNING 1")
    next_attempts.attempt_due(server.context, is_due(server), "")
    expirations = [push.notification["expiration"] for push in server.pushes()]
    assert expirations == [pytest.approx(first, abs=10), int(first + 3600)]


def test_a_dead_firebase_does_not_stop_ios(open_server, gorush):
    server = open_server(gorush={"url": gorush, "timeout": 3, "concurrency": 2}, breaker={"faults": 1})
    apple, google = PrivateKey.generate(), PrivateKey.generate()
    of_apple, of_google = server.register(apple), android(google, server)
    prove(google, server, of_google)
    server.reroute("unreachable", platform=Platform.ANDROID)
    for _ in range(3):
        server.handle(DISPATCH, request(google, server, of_google), request(apple, server, of_apple))
    assert server.rows("SELECT platform, state, count(*) FROM deliveries GROUP BY 1, 2 ORDER BY 1") == [
        (1, "delivered", 3),
        (2, "pending", 3),
    ]
    assert len([push for push in server.pushes() if push.notification["platform"] == 2]) == 1


def test_the_next_attempt_goes_to_the_new_token(server, client):
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["success"]]
    server.renew(client, content, device_token="new-token")
    next_attempts.attempt_due(server.context, is_due(server), "")
    assert [push.notification["tokens"] for push in server.pushes()] == [["unavailable"], ["new-token"]]
    assert server.rows("SELECT state, attempt, version FROM deliveries") == [("delivered", 2, 2)]


def test_a_device_whose_token_died_meanwhile_is_not_posted_to(server, client):
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content))
    server.rows("UPDATE registrations SET token_died_at = now() RETURNING 1")
    trip(server.context.posts.breaker)  # which says nothing about who need not be posted to
    next_attempts.attempt_due(server.context, is_due(server), "")
    assert server.rows("SELECT state, failure FROM deliveries") == [("failed", "device_gone")]
    assert len(server.pushes()) == 1


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

    with running(ThreadingHTTPServer(("127.0.0.1", 0), Throttle)) as proxy:
        yield f"http://127.0.0.1:{proxy.server_port}"


def test_a_worker_that_dies_in_a_post_gives_its_deliveries_back(server, client, monkeypatch):
    content = server.register(client)
    with monkeypatch.context() as patch:
        patch.setattr(attempt, "attempt", lambda *_, **__: Attempted())
        server.handle(DISPATCH, request(client, server, content))
    assert claim_due(as_beat(server.context)) == 0
    server.rows("UPDATE deliveries SET lease_until = now() RETURNING 1")
    assert claim_due(as_beat(server.context)) == 1
    [task] = [json.loads(raw) for raw in server.context.redis.lrange(DISPATCH.name, 0, -1)]
    assert task["headers"]["argsrepr"] == "(ios, attempt 2 of 10, after lease_lost)"
    [(key, task_id)] = server.rows("SELECT delivery_key, task_id FROM deliveries")
    assert task["headers"]["id"] == task_id
    next_attempts.attempt_due(server.context, {key: 0}, "")  # an attempt that is not the next one does nothing
    assert server.pushes() == []
    for _ in range(3):  # as often as the task comes
        next_attempts.attempt_due(server.context, {key: 1}, "")
    assert [push.outcome for push in server.pushes()] == ["delivered"]
    assert server.events("unknown") == [("lease_lost", None)]


def test_deliveries_expire_and_run_out_of_attempts(open_server, client):
    server = open_server(delivery={"max_attempts": 2, "first_wait": 0.01})
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content), request(client, server, content))
    keys = [key for (key,) in server.rows("UPDATE deliveries SET next_attempt_at = now() RETURNING delivery_key")]
    server.rows("UPDATE deliveries SET expires_at = now() WHERE delivery_key = %s RETURNING 1", keys[0])
    assert claim_due(as_beat(server.context)) == 1 + 2
    next_attempts.attempt_due(server.context, dict.fromkeys(keys, 1), "")
    assert sorted(server.rows("SELECT state, attempt, failure FROM deliveries")) == [
        ("dead_letter", 2, "platform_unavailable"),
        ("expired", 1, "delivery_expired"),
    ]
    assert server.events("dead_letter") == [("platform_unavailable", None)]


@pytest.mark.parametrize(
    ("posts", "expires", "end"),
    [
        (0, "now()", ("expired", 0, "delivery_expired")),
        (1, "now()", ("expired", 1, "delivery_expired")),
        (2, "expires_at", ("dead_letter", 2, "platform_unavailable")),
    ],
)
def test_an_end_without_a_post_counts_no_attempt(open_server, client, posts, expires, end):
    server = open_server(delivery={"max_attempts": 2})
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content))
    server.rows(f"UPDATE deliveries SET attempt = %s, expires_at = {expires} RETURNING 1", posts)
    next_attempts.attempt_due(server.context, is_due(server), "")
    assert server.rows("SELECT state, attempt, failure FROM deliveries") == [end]
    assert server.rows("SELECT attempt FROM delivery_events WHERE kind IN ('expired', 'dead_letter')") == [(posts,)]
    assert len(server.pushes()) == 1


def test_probes_failed_by_webhook_count_no_attempt(server, client):
    content = server.register(client, device_token="slow-400")
    server.handle(DISPATCH, request(client, server, content))
    server.rows("UPDATE registrations SET proven = true RETURNING 1")
    server.rows("DELETE FROM deliveries RETURNING 1")
    trip(server.context.posts.breaker)
    server.handle(DISPATCH, request(client, server, content))
    assert server.rows("SELECT state, attempt FROM deliveries") == [("pending", 0)]
    attempts = is_due(server)
    server.context.redis.delete("wakupush:breaker:ios:open")  # the pause is over
    wait_until(lambda: server.context.posts.breaker.claimable(IOS, 9) > 0, timeout=60, what="what was read is too old")
    probing = server.threads.submit(next_attempts.attempt_due, server.context, attempts, "")
    posting = "SELECT FROM deliveries WHERE state = 'posting'"
    wait_until(lambda: server.rows(posting), timeout=60, what="the probe is being posted")
    [key] = attempts
    assert webhook.take(server.context.pool, body(key, BUSY)) is FeedbackResult.NOTED
    probing.result()
    assert [push.outcome for push in server.pushes()][-1] == "delivered"  # by gorush's answer
    assert server.rows("SELECT state, attempt, failure FROM deliveries") == [("pending", 0, "platform_unavailable")]
    assert not server.context.posts.breaker.is_closed(IOS)


def test_deliveries_expire_without_a_post_in_an_outage(server, client):
    content = server.register(client)
    trip(server.context.posts.breaker)
    server.handle(DISPATCH, *(request(client, server, content) for _ in range(3)))
    server.rows("UPDATE deliveries SET expires_at = now(), next_attempt_at = now() + interval '1 hour' RETURNING 1")
    assert claim_due(as_beat(server.context)) == 3
    [task] = [json.loads(raw) for raw in server.context.redis.lrange(DISPATCH.name, 0, -1)]
    [arguments, *_] = json.loads(b64decode(task["body"]))
    assert next_attempts.attempt_due(server.context, *arguments, "") is None
    assert server.rows("SELECT state, attempt, failure FROM deliveries") == [("expired", 0, "delivery_expired")] * 3
    assert server.events("expired") == [("delivery_expired", None)] * 3
    assert server.pushes() == []
    assert claim_due(as_beat(server.context)) == 0
