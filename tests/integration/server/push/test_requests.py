"""Push requests, handled on a real Postgres, Redis, node and gorush: pushed once, answered alike."""

from support.served import as_beat, request, rewrapped
from wakupush.devnet import messages
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.server.beat.deliveries import claim_due


def test_a_repeated_request_pushes_once_answered_alike(server, client):
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
    assert claim_due(as_beat(server.context)) == 0
    server.handle(DISPATCH, rewrapped(sent, server))
    assert server.outcomes(client) == [["success"]]
    assert [push.outcome for push in server.pushes()] == ["BadDeviceToken", "delivered"]
