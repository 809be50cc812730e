"""A registration that a server lost: the client notices in an answer about itself, and registers again, but slowly."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from support.registering import CONTACT, DAY, KEY, PHONE, Server, enabled_registrar, exchange, registered_registrar
from wakupush.client.rules.registering import BACKOFF, CHECK_SECONDS, Options, Status


def answer(client, server, now, infos=()):
    """Let a server answer a query about the client's user."""
    return client.take_infos(server.public_key, infos, client.registered_versions, now)


def test_a_device_that_the_server_leaves_out_registers_again():
    server = Server()
    client = registered_registrar(server)
    lost = answer(client, server, DAY)
    assert (lost.status, lost.version, lost.losses) == (Status.DUE, 1, 1)
    assert exchange(client, server, DAY) == 1
    assert (server.registration.version, server.registration.device_token) == (2, PHONE.device_token)


@pytest.mark.parametrize("options", [Options(), Options(contacts_only=True, contacts=(CONTACT.public_key,))])
def test_a_device_that_the_server_names_stays(options):
    server = Server()
    client = registered_registrar(server, options)
    assert answer(client, server, DAY, client.infos()) is None
    assert client.due(DAY) == []


@pytest.mark.parametrize(
    "change",
    [{"version": 0}, {"installation_id": "another"}, {"key_hash": bytes(64)}],
    ids=["older version", "other device", "other user"],
)
def test_only_the_present_registration_counts(change):
    server = Server()
    client = registered_registrar(server)
    [info] = client.infos()
    assert answer(client, server, DAY, [replace(info, **change)]) is not None


def test_strangers_and_late_answers_repair_nothing():
    server, stranger = Server(), Server()
    client = registered_registrar(server)
    assert answer(client, stranger, DAY) is None
    versions = client.registered_versions
    client.enable(replace(PHONE, device_token="new"))
    assert client.take_infos(server.public_key, (), versions, DAY) is None, "it is registering already"
    exchange(client, server, DAY)
    assert client.take_infos(server.public_key, (), versions, DAY) is None, "the answer is about the version before"
    client.disable()
    assert client.take_infos(server.public_key, (), {server.public_key: 2}, DAY) is None


def test_a_server_that_always_loses_is_asked_slowly():
    server = Server()
    client = registered_registrar(server)
    now, waits = DAY, []
    for _ in range(10):
        assert answer(client, server, now)
        waits.append(client.next_at - now)
        now = client.next_at
        assert exchange(client, server, now) == 1
    assert waits[0] == 0.0
    assert all(after > before for before, after in pairwise(waits[:6]))
    assert BACKOFF.most <= waits[-1] <= BACKOFF.longest


def test_a_new_token_and_a_week_forget_losses():
    server = Server()
    client = registered_registrar(server)
    for now in (DAY, 9 * DAY):
        assert answer(client, server, now).next_at == now
        exchange(client, server, now)
    client.enable(replace(PHONE, device_token="new"))
    exchange(client, server, 9 * DAY)
    assert answer(client, server, 9 * DAY).losses == 1


def test_servers_are_asked_once_a_day():
    server = Server()
    client = enabled_registrar(server)
    assert client.seconds_to_check(0.0) == math.inf
    exchange(client, server)
    assert CHECK_SECONDS * 6 / 7 <= client.seconds_to_check(0.0) <= CHECK_SECONDS
    assert client.seconds_to_check(DAY) == 0.0
    client.note_checked(DAY)
    assert client.seconds_to_check(DAY) > 0.0
    assert client.seconds_to_check(-DAY) == 0.0, "the clock was set back"
    client.state = replace(client.state, check_at=None)
    assert client.seconds_to_check(0.0) == 0.0, "an earlier version registered"
    client.disable()
    assert client.seconds_to_check(2 * DAY) == math.inf


def test_a_loss_is_of_one_server():
    first, second = Server(), Server()
    client = enabled_registrar(first, second)
    servers = {server.public_key: server for server in (first, second)}
    for request in client.due(0.0):
        client.take_answer(request.server, servers[request.server].take(request.sealed), 0.0)
    answer(client, first, DAY)
    assert [request.server for request in client.due(DAY)] == [first.public_key]
    assert [info.server_key for info in client.infos()] == [second.public_key.compressed]
    assert KEY.public_key.key_hash == client.infos()[0].key_hash
