"""Copies, which anybody can publish: what a hash does not cover decides nothing, and a copy costs little."""

import time
from dataclasses import replace

import pytest

from support.served import read_task
from wakupush.devnet import messages
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.protocol import payload
from wakupush.protocol.application import Opened, seal_opened
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import metrics
from wakupush.server.engine import isolation
from wakupush.server.engine import run as engine_run


@pytest.fixture
def opening_trials(monkeypatch):
    """Return a list of what was tried to be opened, with a key of either kind."""
    trials = []
    for name in ("open_asymmetric", "open_symmetric"):
        original = getattr(payload, name)

        def note(data, key, original=original):
            trials.append(data)
            return original(data, key)

        monkeypatch.setattr(payload, name, note)
    return trials


@pytest.mark.parametrize("fields", [{"version": 0}, {"version": 7}, {"ephemeral": True}])
def test_a_copy_with_the_same_hash_is_the_message(server, client, fields):
    """It may come first, and take the message's place in the ledger: then its fate is that of the message."""
    content = messages.registration(client, server.key)
    registering = messages.register(client, server.key, content)
    server.handle(REGISTRATION, replace(registering, **fields))
    server.handle(REGISTRATION, registering)
    assert server.outcomes(client) == ["success"]
    query = messages.query(client, client.public_key.key_hash)
    server.derive()
    server.handle(QUERY, replace(query, **fields), query)
    assert [reply.type_name for reply in server.answers(client)] == ["PUSH_NOTIFICATION_QUERY_RESPONSE"]
    item = messages.notification(client.public_key.key_hash, content)
    request = messages.request(client, server.key, [item])
    server.handle(DISPATCH, replace(request, **fields), request)
    assert server.outcomes(client) == [["success"]]
    assert len(server.pushes()) == 1
    assert server.events("foreign") == []


def test_what_is_passed_on_is_not_opened_again(server, client, opening_trials):
    server.handle(DISPATCH, messages.register(client, server.key, messages.registration(client, server.key)))
    opening_trials.clear()
    server.handle_enqueued(REGISTRATION)
    assert opening_trials == []
    assert server.outcomes(client) == ["success"]


@pytest.mark.parametrize("change", ["garbage", "another's", "a retired key's"])
def test_an_opened_message_that_does_not_fit_counts_for_nothing(server, client, opening_trials, change):
    """Who can write to Redis can neither make one up nor move it to another message."""
    content = messages.registration(client, server.key)
    registering = messages.register(client, server.key, content)
    server.handle(DISPATCH, registering, messages.register(client, server.key, content))
    [entry, other] = read_task(server.context.redis.rpop(REGISTRATION.name))[0]
    of_retired = Opened(16, b"", client.public_key, bytes(32), PrivateKey.generate().public_key)
    sealed = {
        "garbage": entry.opened[:-1],
        "another's": other.opened,
        "a retired key's": seal_opened(of_retired, server.context.identity.opened_key, entry.hash),
    }[change]
    opening_trials.clear()
    server.run(REGISTRATION, [replace(entry, opened=sealed)])
    assert opening_trials == [registering.payload]
    assert server.outcomes(client) == ["success"]


def test_an_old_copy_is_not_opened_again(server, client, opening_trials):
    """Ingest lets it through when its claim is over; the ledger is asked before anything is decrypted."""
    registering = messages.register(client, server.key, messages.registration(client, server.key))
    server.handle(REGISTRATION, registering)
    query = messages.query(client, client.public_key.key_hash)
    foreign = messages.register(client, client.public_key, messages.registration(client, client.public_key))
    server.handle(QUERY, query)
    server.handle(DISPATCH, foreign)
    opening_trials.clear()
    before = metrics.MESSAGES_KNOWN._value.get()
    later = time.time() + 121
    server.handle(REGISTRATION, registering, seen=later)
    server.handle(QUERY, query, query, seen=later)
    server.handle(DISPATCH, foreign, seen=later)
    assert opening_trials == []
    assert metrics.MESSAGES_KNOWN._value.get() == before + 3
    new = messages.request(client, server.key, [messages.notification(client.public_key.key_hash, content_of(client))])
    server.handle(DISPATCH, foreign, new, seen=later)
    assert opening_trials == [new.payload]


def test_copies_of_what_is_done_are_no_attempts(server, client):
    """A task that comes back after its commit, again and again, is no message that fails."""
    registering = messages.register(client, server.key, messages.registration(client, server.key))
    server.handle(REGISTRATION, registering)
    later = time.time() + 121
    for _ in range(isolation.MOST_ATTEMPTS + 1):
        server.handle(REGISTRATION, registering, seen=later, alone=True)
    assert server.rows("SELECT count(*) FROM quarantine") == [(0,)]
    assert server.rows("SELECT count(*) FROM message_attempts") == [(0,)]
    assert server.outcomes(client) == ["success"]


def content_of(client):
    return messages.registration(client, client.public_key)


def test_a_fresh_message_does_not_pay_for_copies(server, client, monkeypatch):
    monkeypatch.setattr(engine_run.ledger, "known", None)  # it would fail
    server.handle(REGISTRATION, messages.register(client, server.key, messages.registration(client, server.key)))
    assert server.outcomes(client) == ["success"]
    late = messages.register(client, server.key, messages.registration(client, server.key))
    from_a_store = late.timestamp / 10**9  # as `first_seen` has it
    server.handle(REGISTRATION, late, seen=from_a_store)
    assert len(server.outcomes(client)) == 1
