"""When a device is registered anew, and with which access token: contacts that may no longer, weeks, clocks."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from support.registering import (
    BOTH,
    CONTACT,
    DAY,
    KEY,
    OTHER,
    PHONE,
    Server,
    enabled_registrar,
    exchange,
    registered_registrar,
    registrar,
)
from wakupush.client.drivers.storage import REGISTRATION
from wakupush.client.rules.registering import Options
from wakupush.model.failures import Answer
from wakupush.protocol.grants import is_granted
from wakupush.protocol.query import find_token


def test_a_new_device_token_keeps_the_access_token():
    server = Server()
    client = registered_registrar(server)
    before = client.state.access_token
    client.enable(replace(PHONE, device_token="new"))
    assert exchange(client, server) == 1
    assert (server.registration.device_token, server.registration.version, server.registration.access_token) == (
        "new",
        2,
        before,
    )
    client.enable(replace(PHONE, device_token="new"))
    assert exchange(client, server) == 0


@pytest.mark.parametrize(
    ("before", "after", "renewed"),
    [
        (Options(), Options(muted_chats=("c",)), False),
        (Options(), Options(contacts_only=True, contacts=BOTH), True),
        (Options(contacts_only=True, contacts=BOTH), Options(contacts_only=True, contacts=BOTH[:1]), True),
        (Options(contacts_only=True, contacts=BOTH[:1]), Options(contacts_only=True, contacts=BOTH), False),
        (Options(contacts_only=True, contacts=BOTH), Options(contacts=BOTH), False),
        (Options(contacts=BOTH), Options(contacts=BOTH[:1]), False),
    ],
)
def test_access_token_changes_for_removed_contacts(before, after, renewed):
    server = Server()
    client = registered_registrar(server, before)
    token = client.state.access_token
    client.set_options(after)
    assert exchange(client, server) == 1
    assert (server.registration.access_token != token) == renewed
    assert is_granted(server.registration.grant, KEY.public_key, server.public_key, server.registration.access_token)


def test_only_contacts_find_the_advertised_token():
    server = Server()
    client = registered_registrar(server, Options(contacts_only=True, contacts=(CONTACT.public_key,)))
    [info] = client.infos()
    assert info.access_token == ""
    assert find_token(info, KEY.public_key, CONTACT) == client.state.access_token
    assert find_token(info, KEY.public_key, OTHER) is None
    assert is_granted(info.grant, KEY.public_key, server.public_key, client.state.access_token)


def test_renews_weekly_and_tokens_every_two_weeks():
    server = Server()
    client = registered_registrar(server)
    registrations = [(0.0, server.registration)]
    while len(registrations) < 30:
        now = client.next_at
        assert client.due(now - 1) == []
        assert exchange(client, server, now) == 1
        registrations.append((now, server.registration))
        [info] = client.infos()
        assert (info.version, info.access_token) == (server.registration.version, server.registration.access_token)
        assert is_granted(info.grant, KEY.public_key, server.public_key, info.access_token)
    waits = [later - now for (now, _), (later, _) in pairwise(registrations)]
    assert all(6 * DAY <= wait <= 7 * DAY for wait in waits)
    assert len(set(waits)) == len(waits)
    assert [registration.version for _, registration in registrations] == list(range(1, 31))
    since = {}
    for now, registration in registrations:
        since.setdefault(registration.access_token, now)
    assert all(later - now <= 14 * DAY for now, later in pairwise(since.values()))
    assert len(since) <= 16  # each is of use for two weeks


def test_a_renewed_token_is_sealed_for_contacts_anew():
    server = Server()
    client = registered_registrar(server, Options(contacts_only=True, contacts=(CONTACT.public_key,)))
    before = client.state.access_token
    for _ in range(2):
        exchange(client, server, client.next_at)
    assert client.state.access_token != before
    [info] = client.infos()
    assert find_token(info, KEY.public_key, CONTACT) == client.state.access_token == server.registration.access_token
    assert is_granted(info.grant, KEY.public_key, server.public_key, client.state.access_token)


def test_after_a_long_absence_the_token_is_renewed():
    server = Server()
    client = registered_registrar(server)
    before = client.state.access_token
    client = registrar(REGISTRATION.load(REGISTRATION.dump(client.state)))
    assert exchange(client, server, 30 * DAY) == 1
    assert (server.registration.version, server.registration.access_token) == (2, client.state.access_token)
    assert client.state.access_token != before
    assert exchange(client, server, 35 * DAY) == 0


def test_a_clock_that_was_set_back_only_renews_sooner():
    server = Server()
    client = enabled_registrar(server)
    exchange(client, server, 100 * DAY)
    assert exchange(client, server, 10 * DAY) == 1
    assert exchange(client, server, 10 * DAY) == 0
    assert 16 * DAY <= client.next_at <= 17 * DAY


def test_an_old_document_is_renewed_within_a_week():
    server = Server()
    text = REGISTRATION.dump(registered_registrar(server).state)
    document = {name: value for name, value in json.loads(text).items() if name not in {"renew_at", "token_at"}}
    client = registrar(REGISTRATION.load(json.dumps(document)))
    assert exchange(client, server, 100 * DAY) == 0
    assert 106 * DAY <= client.next_at <= 107 * DAY
    assert exchange(client, server, client.next_at) == 1


def test_a_renewal_goes_to_who_has_the_device_alone():
    servers = {each.public_key: each for each in (Server(), Server(), Server())}
    current, refuses, former = servers.values()
    client = enabled_registrar(*servers.values())
    for asking in client.due(0.0):
        answer = servers[asking.server].take(asking.sealed)
        error = Answer.MALFORMED_MESSAGE if asking.server == refuses.public_key else None
        client.take_answer(asking.server, replace(answer, error=error), 0.0)
    client.set_servers([current.public_key, refuses.public_key])
    [asking] = client.due(0.0)
    client.take_answer(former.public_key, former.take(asking.sealed), 0.0)
    assert exchange(client, current, client.next_at) == 1
    assert [len(each.messages) for each in (current, refuses, former)] == [2, 1, 2]
    client.disable()
    for asking in client.due(8 * DAY):
        client.take_answer(asking.server, servers[asking.server].take(asking.sealed), 8 * DAY)
    assert client.next_at is None
