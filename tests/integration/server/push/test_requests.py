"""Push requests, handled on a real Postgres, Redis, node and gorush: pushed once, answered alike."""

from support.served import as_beat, request, rewrapped
from wakupush.model.queues import DISPATCH
from wakupush.server.beat.deliveries import claim_due


def test_after_an_internal_error_a_new_envelope_may_push(server, client):
    content = server.register(client, device_token="bad-then-good")
    message = request(client, server, content)
    server.handle(DISPATCH, message)
    assert server.outcomes(client) == [["INTERNAL_ERROR"]]
    server.reroute("good")
    server.handle(DISPATCH, message)
    assert claim_due(as_beat(server.context)) == 0
    server.handle(DISPATCH, rewrapped(message, server))
    assert server.outcomes(client) == [["success"]]
    assert [push.outcome for push in server.pushes()] == ["BadDeviceToken", "delivered"]
