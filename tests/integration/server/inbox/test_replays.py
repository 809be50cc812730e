"""A recorded push request stays dead for as long as an access token lives, and an honest one lives."""

import random
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.served import SHARD, request
from wakupush.devnet.demo import messages
from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import packed_requests
from wakupush.protocol.grants import grant
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.server.schedule.beat import open_beat
from wakupush.server.schedule.jobs import JOBS
from wakupush.server.schedule.retention import prune

AT_REST = Identity.of(PrivateKey(b"\1" * 32)).at_rest
PHONE = "3f4a7c02-11a9-496c-a63a-54582dca8cef"
OTHER_TOKEN = "00000000-0000-4000-8000-000000000001"


def pack(connection, ids, month, *, bits=4, at_rest=AT_REST):
    """Store ids as an earlier release did: by the first bits of their digests, the next 48 of each, ascending."""
    rows = {}
    for digest in sorted(at_rest.request(message_id) for message_id in ids):
        next_48_bits = (digest >> (16 - bits)) & (2**48 - 1)
        rows.setdefault(digest >> (64 - bits), []).append(next_48_bits.to_bytes(6, "big"))
    connection.execute("INSERT INTO packed_months (month, prefix_bits) VALUES (%s, %s)", [month, bits])
    for prefix, digests in rows.items():
        connection.execute(
            "INSERT INTO packed_requests (month, prefix, digests) VALUES (%s, %s, %s)",
            [month, prefix, b"".join(digests)],
        )


def make_old(server, *, days):
    """Let the time go by since the last request, and since the device got its access token."""
    server.rows("UPDATE admitted_requests SET admitted_at = now() - %s * interval '1 day' RETURNING 1", days)
    server.rows("UPDATE registrations SET access_token_since = now() - interval '1000 days' RETURNING 1")


def send_again(server, sent):
    """Send a recorded request in a new envelope: its time and payload are the stranger's, what is sealed is not."""
    copy = WakuMessage(
        payload=sent.payload, content_topic=sent.content_topic, timestamp=sent.timestamp + random.randrange(1, 10**9)
    )
    server.handle(DISPATCH, copy)


@pytest.mark.parametrize("days", [1, 29, 31, 62, 200, 399, 800])
def test_a_replay_pushes_nothing_while_a_token_lives(server, client, days):
    content = server.register(client, installation_id=PHONE)
    server.handle(DISPATCH, sent := request(client, server, content))
    assert len(server.pushes()) == 1
    make_old(server, days=days)
    server.rows("DELETE FROM deliveries RETURNING 1")  # they go after a day
    prune(server.context)
    send_again(server, sent)
    assert server.pushes() == []
    assert server.rows("SELECT count(*) FROM deliveries") == [(0,)]
    assert server.rows("SELECT count(*) FROM admitted_requests") == [(1,)]


def test_a_replay_of_a_packed_request_is_silent(server, client):
    content = server.register(client, installation_id=PHONE)
    server.handle(DISPATCH, sent := request(client, server, content))
    assert len(server.pushes()) == 1
    make_old(server, days=62)
    server.rows("DELETE FROM deliveries RETURNING 1")
    ids = [message_id for (message_id,) in server.rows("DELETE FROM admitted_requests RETURNING message_id")]
    month = (datetime.now(UTC).date() - timedelta(days=62)).replace(day=1)
    with server.context.pool.connection() as connection:
        pack(connection, ids, month, at_rest=server.context.identity.at_rest)
    send_again(server, sent)
    assert server.pushes() == []
    assert server.events("refused") == [("request_over", None)]


def test_a_replay_meets_the_wrong_token_once_the_device_has_another(server, client):
    content = server.register(client, installation_id=PHONE)
    server.handle(DISPATCH, sent := request(client, server, content))
    server.outcomes(client), server.pushes()
    newer = messages.registration(client, server.key, installation_id=PHONE, version=2, access_token=OTHER_TOKEN)
    newer.grant = grant(client, server.key, OTHER_TOKEN)
    server.handle(REGISTRATION, messages.register(client, server.key, newer))
    server.outcomes(client)
    server.rows("DELETE FROM admitted_requests RETURNING 1")
    send_again(server, sent)
    assert server.outcomes(client) == [["WRONG_TOKEN"]]
    assert server.pushes() == []


@pytest.mark.parametrize("token", [PHONE, OTHER_TOKEN])
def test_since_when_a_device_has_its_token_is_known(server, client, token):
    server.register(client, installation_id=PHONE, access_token=PHONE, grant=grant(client, server.key, PHONE))
    server.rows("UPDATE registrations SET access_token_since = now() - interval '40 days' RETURNING 1")
    server.register(
        client, installation_id=PHONE, version=2, access_token=token, grant=grant(client, server.key, token)
    )
    [(since,)] = server.rows("SELECT access_token_since FROM registrations")
    is_new = datetime.now(UTC) - since < timedelta(days=1)
    assert is_new == (token != PHONE)


def test_of_who_comes_back_it_is_not_known(server, client):
    """A request of before would be let through if the same token counted as new."""
    content = server.register(client, installation_id=PHONE)
    gone = messages.PushNotificationRegistration(unregister=True, version=2, installation_id=content.installation_id)
    server.handle(REGISTRATION, messages.register(client, server.key, gone))
    server.outcomes(client)
    server.register(client, installation_id=PHONE, version=3)
    assert server.rows("SELECT access_token_since FROM registrations") == [(None,)]


def test_only_who_has_an_old_token_is_asked_for(server, client, monkeypatch):
    content = server.register(client, installation_id=PHONE)
    asked = []
    find = packed_requests.find
    monkeypatch.setattr(packed_requests, "find", lambda *arguments: asked.append(arguments[1]) or find(*arguments))
    server.handle(DISPATCH, request(client, server, content))
    server.handle(DISPATCH, request(client, server, content, access_token="wrong"))
    assert asked == []
    server.rows("UPDATE registrations SET access_token_since = now() - interval '31 days' RETURNING 1")
    server.handle(DISPATCH, request(client, server, content, access_token="wrong"))
    assert asked == []
    server.handle(DISPATCH, request(client, server, content))
    assert len(asked) == 1


# What expired


def late(server, sent, *, live, by=700):
    seen = server.context.now() - by
    entry = Entry(SHARD, message_hash(SHARD, sent), seen, sent, live=live)
    server.run(DISPATCH, [entry])


def test_what_our_own_queues_let_expire_is_never_pushed(server, client):
    content = server.register(client, installation_id=PHONE)
    late(server, sent := request(client, server, content), live=True)
    assert server.events("expired") == [("request_expired", None)]
    send_again(server, sent)
    assert server.pushes() == []
    assert server.answers(client) == []
    assert server.events("refused") == [("request_over", None)]


def test_an_old_time_in_another_envelope_does_not_kill_the_original(server, client):
    content = server.register(client, installation_id=PHONE)
    late(server, sent := request(client, server, content), live=False)
    assert server.events("expired") == [("request_expired", None)]
    send_again(server, sent)
    assert server.outcomes(client) == [["success"]]
    assert len(server.pushes()) == 1


def test_of_what_could_not_be_pushed_nothing_is_remembered(server, client):
    content = server.register(client, installation_id=PHONE)
    late(server, request(client, server, content, access_token="wrong"), live=True)
    late(server, request(client, server, content, installation_id=OTHER_TOKEN), live=True)
    assert len(server.events("expired")) == 2
    assert server.rows("SELECT count(*) FROM admitted_requests") == [(0,)]


def test_no_job_packs_old_ids(server):
    server.rows(
        "INSERT INTO admitted_requests (message_id, succeeded, admitted_at)"
        " VALUES ('\\x01', '1', now() - interval '500 days') RETURNING 1"
    )
    schedule = open_beat(server.context.settings)
    try:
        for job in JOBS:
            job(schedule)
    finally:
        schedule.close()
    assert server.context.redis.llen(REGISTRATION.name) == 0
    assert server.rows("SELECT count(*) FROM admitted_requests") == [(1,)]


# What an earlier release packed


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_finds_packed_ids_and_no_others(connection, data):
    connection.execute("TRUNCATE packed_requests, packed_months")
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    packed_ids, others = set(), [chance.randbytes(32) for _ in range(200)]
    for month in range(data.draw(st.integers(1, 4))):
        ids = [chance.randbytes(32) for _ in range(data.draw(st.sampled_from([1, 2, 100, 3000])))]
        pack(connection, ids, date(2026, 1 + month, 1), bits=data.draw(st.sampled_from([0, 1, 6, 16])))
        packed_ids.update(ids)
    assert packed_requests.find(connection, [*packed_ids, *others], AT_REST) == packed_ids


def test_months_are_forgotten_after_400_days(server):
    today = datetime.now(UTC).date()
    first = {(today - timedelta(days=days)).replace(day=1) for days in (500, 431, 380)}
    with server.context.pool.connection() as connection:
        for month in first:
            pack(connection, [random.randbytes(32)], month)
    prune(server.context)
    for table in ("packed_months", "packed_requests"):
        assert server.rows(f"SELECT month FROM {table}") == [(max(first),)]
