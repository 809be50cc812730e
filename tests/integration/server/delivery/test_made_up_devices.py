"""Devices that strangers make up: their failures stop nobody's pushes, on a real Postgres, Redis and gorush."""

import pytest

from support.rows import IOS
from support.served import is_due, prove, request, trip
from wakupush.devnet.processes import wait_until
from wakupush.model.queues import DISPATCH
from wakupush.protocol.keys import PrivateKey
from wakupush.server.delivery import next_attempts

#: Tokens whose failures say that the route is broken.
BROKEN = ("unavailable", "unreachable", "credentials")
LONG = "x" * 4096


def is_closed(server):
    return server.context.posts.breaker.is_closed(IOS)


def end_pause(server):
    assert server.context.redis.delete("wakupush:breaker:ios:open")
    wait_until(lambda: server.context.posts.breaker.claimable(IOS, 9) > 0, timeout=60, what="what was read is too old")


@pytest.mark.parametrize("device_token", BROKEN)
def test_a_made_up_device_opens_no_breaker(open_server, client, device_token):
    server = open_server(breaker={"faults": 2})
    content = server.register(client, device_token=device_token)
    for _ in range(4):
        server.handle(DISPATCH, request(client, server, content))
    assert [push.outcome == "delivered" for push in server.pushes()] == [False] * 4
    assert is_closed(server)


@pytest.mark.parametrize("device_token", BROKEN)
def test_a_device_that_a_push_reached_opens_it(open_server, client, device_token):
    server = open_server(breaker={"faults": 2})
    content = server.register(client)
    prove(client, server, content)
    server.reroute(device_token)
    for _ in range(2):
        assert is_closed(server)
        server.handle(DISPATCH, request(client, server, content))
    assert not is_closed(server)


def test_headers_that_are_too_long_fail_their_device_alone(open_server, client):
    """As they are stored of a time when a registration could have them."""
    server = open_server(breaker={"faults": 1})
    content = server.register(client, device_token="old")
    server.reroute(LONG, apn_topic=LONG)
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["INTERNAL_ERROR"]]
    assert server.rows("SELECT state, failure, attempt FROM deliveries") == [("failed", "token_rejected", 1)]
    assert is_closed(server)


@pytest.mark.parametrize("device_token", ["unavailable", "bad"])
def test_a_made_up_device_is_no_evidence_as_a_probe(open_server, client, device_token, monkeypatch):
    monkeypatch.setattr("wakupush.server.delivery.breaker.PROBES", 2)
    server = open_server()
    invented = server.register(client, device_token=device_token)
    trip(server.context.posts.breaker)
    server.handle(DISPATCH, request(client, server, invented))
    end_pause(server)
    next_attempts.attempt_due(server.context, is_due(server), "")
    assert len(server.pushes()) == 1
    assert server.rows("SELECT attempt FROM deliveries") == [(1,)], "it counts: nobody probes for ever"
    assert server.context.posts.breaker.claimable(IOS, 9) == 2, "neither closed nor open, and its place is free"


def test_devices_that_a_push_reached_are_the_first_probes(open_server, client, monkeypatch):
    monkeypatch.setattr("wakupush.server.delivery.breaker.PROBES", 1)
    server = open_server()
    stranger = PrivateKey.generate()
    content, invented = server.register(client), server.register(stranger, device_token="unavailable")
    prove(client, server, content)
    trip(server.context.posts.breaker)
    for _ in range(3):
        server.handle(DISPATCH, request(stranger, server, invented))
    server.handle(DISPATCH, request(client, server, content))
    end_pause(server)
    next_attempts.attempt_due(server.context, is_due(server), "")
    assert [push.outcome for push in server.pushes()] == ["delivered"]
    assert is_closed(server)
