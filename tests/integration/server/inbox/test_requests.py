"""Push requests, handled on a real Postgres, Redis, node and gorush: pushed once, answered alike."""

import time

from support.served import request, rewrapped
from wakupush.devnet.demo import messages
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.pb.push_notification_pb2 import PushNotification, PushNotificationRegistration
from wakupush.server.schedule.deliveries import claim_due


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


def test_more_items_than_allowed_are_refused_each(open_server, client, monkeypatch):
    monkeypatch.setattr("wakupush.server.inbox.open.REQUEST_ITEMS", 100)
    server = open_server()
    content = server.register(client)
    items = [messages.notification(client.public_key.key_hash, content) for _ in range(101)]
    server.handle(DISPATCH, messages.request(client, server.key, items))
    assert server.outcomes(client) == [["INTERNAL_ERROR"] * 100]
    assert server.pushes() == []


def test_unregistering_ends_what_is_on_its_way(server, client):
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content))
    assert server.rows("SELECT state FROM deliveries") == [("pending",)]
    gone = PushNotificationRegistration(unregister=True, version=2, installation_id=content.installation_id)
    server.handle(REGISTRATION, messages.register(client, server.key, gone))
    assert server.rows("SELECT count(*) FROM deliveries") == [(0,)]


def test_a_contact_request_is_kept_back_by_a_blocked_author_alone(server, client):
    chat, blocked = bytes(64), b"b" * 64
    content = server.register(client, blocked_chat_list=[chat, blocked], muted_chat_list=[chat], block_mentions=True)
    asked = {"type": PushNotification.CONTACT_REQUEST, "chat_id": chat}
    server.handle(DISPATCH, request(client, server, content, **asked))
    server.handle(DISPATCH, request(client, server, content, **asked, author=blocked))
    assert server.outcomes(client) == [["success"]] * 2
    [push] = server.pushes()
    assert push.notification["message"] == "Someone sent you a contact request"
    assert server.events("filtered") == [(None, "blocked_author")]
