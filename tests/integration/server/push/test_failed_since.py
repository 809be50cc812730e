"""Push requests that come again after their deliveries failed for good, on a real Postgres, Redis, node and gorush."""

import pytest

from support.served import is_due, request, rewrapped
from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.model.queues import DISPATCH
from wakupush.pb.push_notification_pb2 import PushNotification, PushNotificationRegistration
from wakupush.protocol.keys import PrivateKey
from wakupush.server.delivery import next_attempts

CHAT = b"c" * 64


@pytest.fixture
def server(open_server):
    """A server that gives each delivery one attempt."""
    return open_server(delivery={"max_attempts": 1}, worker={"answer_within": 0.2})


def states(server):
    return server.rows("SELECT state, attempt, failure, platform FROM deliveries")


def send(server, client, content, **fields):
    """Send a request whose delivery fails before anybody knows, and return it; its sender is told of success."""
    message = request(client, server, content, **fields)
    server.handle(DISPATCH, message)
    assert server.outcomes(client) == [["success"]]
    wait_until(lambda: states(server)[0][0] not in {"posting", "pending"}, timeout=60, what="the delivery has ended")
    server.pushes()
    return message


def repeat(server, client, message):
    """Send a request in a new envelope, and return the reports of each answer, and the outcomes of new pushes."""
    server.handle(DISPATCH, rewrapped(message, server))
    wait_until(lambda: not server.rows("SELECT FROM deliveries WHERE state = 'posting'"), timeout=60, what="posts end")
    return server.outcomes(client), [push.outcome for push in server.pushes()]


def test_a_repeat_is_told_of_a_token_that_died_since(server, client):
    message = send(server, client, server.register(client, device_token="slow-1000-dead"))
    assert states(server)[0][:3] == ("failed", 1, "token_unregistered")
    assert repeat(server, client, message) == ([["NOT_REGISTERED"]], [])
    assert repeat(server, client, message) == ([["NOT_REGISTERED"]], [])


def test_a_repeat_takes_up_a_dead_letter(server, client):
    message = send(server, client, server.register(client, device_token="slow-1000-unavailable"))
    assert states(server)[0][:3] == ("dead_letter", 1, "platform_unavailable")
    server.reroute("well")
    assert repeat(server, client, message) == ([["success"]], ["delivered"])
    assert states(server)[0][:3] == ("delivered", 1, None)
    assert repeat(server, client, message) == ([["success"]], [])


def test_a_repeat_takes_up_what_expired(open_server, client):
    server = open_server()
    content = server.register(client, device_token="unavailable")
    message = request(client, server, content)
    server.handle(DISPATCH, message)
    server.rows("UPDATE deliveries SET expires_at = now() RETURNING 1")
    next_attempts.attempt_due(server.context, is_due(server), "")
    assert states(server)[0][0] == "expired"
    server.reroute("well")
    server.pushes()
    assert repeat(server, client, message) == ([["success"]] * 2, ["delivered"])
    [(has_time,)] = server.rows("SELECT expires_at > now() FROM deliveries")
    assert has_time


def test_a_device_may_be_of_another_platform_by_then(server, client):
    content = server.register(client, device_token="slow-1000-unavailable")
    message = send(server, client, content)
    server.renew(client, content, token_type=PushNotificationRegistration.FIREBASE_TOKEN, apn_topic="")
    assert repeat(server, client, message) == ([["success"]], ["delivered"])
    assert states(server) == [("delivered", 1, None, 2)]


def test_what_arrived_is_not_pushed_again_with_what_failed(server, client):
    other = PrivateKey.generate()
    well, dead = server.register(client), server.register(other, device_token="slow-1000-dead")
    items = [
        messages.notification(user.public_key.key_hash, content) for user, content in ((client, well), (other, dead))
    ]
    message = messages.request(client, server.key, items)
    server.handle(DISPATCH, message)
    wait_until(
        lambda: sorted(state for state, *_ in states(server)) == ["delivered", "failed"], timeout=60, what="posts end"
    )
    assert server.outcomes(client) == [["success"] * 2]
    assert len(server.pushes()) == 2
    assert repeat(server, client, message) == ([["success", "NOT_REGISTERED"]], [])


def test_the_wishes_of_the_receiver_are_those_of_now(server, client):
    content = server.register(client, device_token="slow-1000-unavailable")
    message = send(server, client, content, type=PushNotification.MESSAGE, chat_id=CHAT)
    server.renew(client, content, muted_chat_list=[CHAT])
    assert repeat(server, client, message) == ([["success"]], [])
    assert states(server)[0][0] == "dead_letter"


def test_once_the_row_is_gone_the_old_answer_stands(server, client):
    message = send(server, client, server.register(client, device_token="slow-1000-dead"))
    server.rows("DELETE FROM deliveries RETURNING 1")
    assert repeat(server, client, message) == ([["success"]], [])


def test_once_the_row_is_gone_the_last_answer_stands(server, client):
    message = send(server, client, server.register(client, device_token="slow-1000-dead"))
    assert repeat(server, client, message) == ([["NOT_REGISTERED"]], [])
    server.rows("DELETE FROM deliveries RETURNING 1")
    assert repeat(server, client, message) == ([["NOT_REGISTERED"]], [])


def test_a_request_that_is_over_stays_silent(server, client):
    message = send(server, client, server.register(client, device_token="slow-1000-unavailable"))
    server.rows("UPDATE admitted_requests SET expired = true RETURNING 1")
    assert repeat(server, client, message) == ([], [])


def test_repeats_beyond_the_limit_are_not_answered(open_server, client, monkeypatch):
    monkeypatch.setattr("wakupush.server.push.charge.REPEATS_PER_MINUTE", 1)
    server = open_server(delivery={"max_attempts": 1}, worker={"answer_within": 0.2})
    message = send(server, client, server.register(client, device_token="slow-1000-unavailable"))
    answers = [repeat(server, client, message)[0] for _ in range(3)]
    assert answers == [[["success"]], [], []]
    assert server.counted("device_pushes") == 2, "the request, and the repeat that was answered"
