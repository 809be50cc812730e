"""What gorush's webhook tells, while a delivery is being posted, after it read as delivered, and of nothing."""

import json

import pytest

from support.feedback import BUSY, DEAD, body
from support.served import as_beat, request, rewrapped
from wakupush.devnet.processes import wait_until
from wakupush.model.failures import Failure
from wakupush.model.queues import DISPATCH
from wakupush.server.beat.deliveries import claim_due, enqueue_feedback
from wakupush.server.delivery import attempt, next_attempts, webhook
from wakupush.server.delivery.posting import Attempted
from wakupush.server.delivery.webhook import FeedbackResult


def told_while_posting(server, client, content, error):
    """Ask for a push, tell the webhook of its failure before gorush answers, and return what the sender is told."""
    asking = server.threads.submit(server.handle, DISPATCH, request(client, server, content))
    posting_rows = []

    def posting():
        posting_rows[:] = server.rows("SELECT delivery_key FROM deliveries WHERE state = 'posting'")
        return bool(posting_rows)

    wait_until(posting, timeout=60, what="the delivery is being posted")
    assert webhook.take(server.context.pool, body(posting_rows[0][0], error)) is FeedbackResult.NOTED
    asking.result()
    [[outcome]] = server.outcomes(client)
    return outcome


def test_what_is_told_before_gorush_answers_is_the_outcome(server, client):
    content = server.register(client, device_token="slow-400")
    assert told_while_posting(server, client, content, DEAD) == "NOT_REGISTERED"
    assert [push.outcome for push in server.pushes()] == ["delivered"]  # by gorush's answer
    assert server.rows("SELECT state, failure, feedback FROM deliveries") == [("failed", "token_unregistered", None)]
    assert server.events("token_died") == [("token_unregistered", None)]
    assert server.events("delivered") == []


def test_a_passing_failure_of_the_webhook_is_tried_again(server, client):
    content = server.register(client, device_token="slow-400")
    assert told_while_posting(server, client, content, BUSY) == "success"
    query = "SELECT state, failure, attempt FROM deliveries"
    assert server.rows(query) == [("pending", "platform_unavailable", 1)]
    [(key,)] = server.rows("UPDATE deliveries SET next_attempt_at = now() RETURNING delivery_key")
    assert claim_due(as_beat(server.context)) == 1
    next_attempts.attempt_due(server.context, {key: 1}, "")
    assert server.rows(query) == [("delivered", None, 2)]


def test_what_gorush_answers_is_not_overruled(server, client):
    content = server.register(client, device_token="slow-400-dead")
    assert told_while_posting(server, client, content, BUSY) == "NOT_REGISTERED"
    assert server.rows("SELECT state, failure FROM deliveries") == [("failed", "token_unregistered")]


def test_feedback_counts_for_its_own_attempt(server, client, monkeypatch):
    content = server.register(client)
    with monkeypatch.context() as patch:
        patch.setattr(attempt, "attempt", lambda *_, **__: Attempted())
        server.handle(DISPATCH, request(client, server, content))
    [(key,)] = server.rows("UPDATE deliveries SET lease_until = now() RETURNING delivery_key")
    assert webhook.take(server.context.pool, body(key)) is FeedbackResult.NOTED
    assert claim_due(as_beat(server.context)) == 1
    next_attempts.attempt_due(server.context, {key: 1}, "")
    assert server.rows("SELECT state, attempt FROM deliveries") == [("delivered", 2)]
    assert enqueue_feedback(server.context) == 0


def test_late_feedback_does_not_hit_another_life(server, client):
    content = server.register(client, device_token="dead")
    message = request(client, server, content)
    server.handle(DISPATCH, message)
    rows = "SELECT state, attempt FROM deliveries"
    wait_until(lambda: server.rows(rows) == [("failed", 1)], timeout=60, what="the token is dead")
    server.outcomes(client)
    server.renew(client, content, device_token="works")
    server.handle(DISPATCH, rewrapped(message, server))
    wait_until(lambda: server.rows(rows) == [("delivered", 1)], timeout=60, what="it is taken up again")
    first, second = (push.notification["notif_id"] for push in server.pushes())
    assert webhook.take(server.context.pool, body(first, BUSY)) is FeedbackResult.KNOWN
    assert server.rows("SELECT feedback FROM deliveries") == [(None,)]
    assert webhook.take(server.context.pool, body(second, BUSY)) is FeedbackResult.NOTED


def test_what_is_told_late_is_not_charged_to_the_next_attempt(server, client):
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["success"]]
    server.renew(client, content, device_token="slow-400")
    [(key,)] = server.rows("UPDATE deliveries SET next_attempt_at = now() RETURNING delivery_key")
    retrying = server.threads.submit(next_attempts.attempt_due, server.context, {key: 1}, "")
    posting = "SELECT count(*) FROM deliveries WHERE state = 'posting' AND attempt = 2"
    wait_until(lambda: server.rows(posting) == [(1,)], timeout=60, what="the second attempt is under way")
    assert webhook.take(server.context.pool, body(key)) is FeedbackResult.KNOWN
    retrying.result()
    assert webhook.take(server.context.pool, body(key)) is FeedbackResult.KNOWN
    assert enqueue_feedback(server.context) == 0
    assert server.rows("SELECT state, attempt FROM deliveries") == [("delivered", 2)]
    assert server.rows("SELECT token_died_at FROM registrations") == [(None,)]
    assert webhook.take(server.context.pool, body(key, attempt=2)) is FeedbackResult.NOTED


def test_what_is_told_of_a_delivered_one_makes_it_failed(server, client):
    content = server.register(client)
    server.handle(DISPATCH, request(client, server, content))
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries WHERE state = 'delivered'")
    assert enqueue_feedback(server.context) == 0
    for _ in range(2):
        assert webhook.take(server.context.pool, body(key)) is FeedbackResult.NOTED
    assert [enqueue_feedback(server.context) for _ in range(2)] == [1, 0]
    [task] = [json.loads(raw) for raw in server.context.redis.lrange(DISPATCH.name, 0, -1)]
    assert task["headers"]["task"] == "wakupush.feedback"
    for _ in range(2):  # as often as the task comes
        webhook.apply(server.context, [key])
    assert server.rows("SELECT state, failure, feedback FROM deliveries") == [("failed", "token_unregistered", None)]
    assert server.events("failed") == [("token_unregistered", None)]
    assert server.events("token_died") == [("token_unregistered", None)]
    assert webhook.take(server.context.pool, body(key)) is FeedbackResult.KNOWN
    server.outcomes(client)
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["NOT_REGISTERED"]]
    [(tried, bad)] = server.rows("SELECT sum(tried), sum(bad) FROM app_token_trials")
    assert (tried, bad) == (1, 1)


@pytest.mark.parametrize(
    ("error", "kind", "failure"),
    [
        ("Unregistered", "failed", "token_unregistered"),
        ('Post "https://api.push.apple.com/3/device/": context deadline exceeded', "unknown", "platform_timed_out"),
    ],
)
def test_what_the_webhook_leaves_unknown_is_told_as_unknown(server, client, error, kind, failure):
    content = server.register(client)
    server.handle(DISPATCH, request(client, server, content))
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries WHERE state = 'delivered'")
    assert webhook.take(server.context.pool, body(key, error)) is FeedbackResult.NOTED
    webhook.apply(server.context, [key])
    history = server.rows("SELECT kind, failure FROM delivery_history WHERE kind IN ('failed', 'unknown')")
    assert history == [(kind, failure)]


def test_a_delivery_made_anew_forgets_old_feedback(server, client):
    content = server.register(client, device_token="bad")
    message = request(client, server, content)
    server.handle(DISPATCH, message)
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries")
    assert webhook.take(server.context.pool, body(key)) is FeedbackResult.KNOWN
    assert server.rows("SELECT feedback FROM deliveries") == [(None,)]


def test_only_the_version_that_was_tried_dies(server, client):
    content = server.register(client)
    server.handle(DISPATCH, request(client, server, content))
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries")
    server.rows("UPDATE registrations SET version = 2 RETURNING 1")
    webhook.take(server.context.pool, body(key))
    webhook.apply(server.context, [key])
    assert server.rows("SELECT state FROM deliveries") == [("failed",)]
    assert server.rows("SELECT token_died_at FROM registrations") == [(None,)]


@pytest.mark.parametrize(
    ("hook_body", "result"),
    [
        (body(b"k" * 32), FeedbackResult.UNKNOWN),
        (body(b"k" * 32, attempt=99_999), FeedbackResult.UNKNOWN),
        (body("somebody else's"), FeedbackResult.UNKNOWN),
        (body("AB" * 32 + "-1"), FeedbackResult.UNKNOWN),
        # Without the attempt, as earlier versions posted.
        (body("ab" * 32), FeedbackResult.UNKNOWN),
        (body(b"k" * 32, platform="huawei"), FeedbackResult.MALFORMED),
        (body(""), FeedbackResult.MALFORMED),
        (b"[" * 10_000, FeedbackResult.MALFORMED),
        (b"", FeedbackResult.MALFORMED),
    ],
)
def test_what_fits_nothing(server, hook_body, result):
    assert webhook.take(server.context.pool, hook_body) is result


def test_a_label_of_a_newer_version_is_an_unclear_failure(server, client):
    server.handle(DISPATCH, request(client, server, server.register(client)))
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries")
    server.rows("UPDATE deliveries SET feedback = 'of a newer version' RETURNING 1")
    webhook.apply(server.context, [key])
    assert server.rows("SELECT state FROM deliveries") == [("failed",)]
    assert server.events("failed") == [(Failure.PLATFORM_UNCLEAR.label, None)]
