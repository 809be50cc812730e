"""A recorded push request stays dead for as long as an access token lives, and an honest one lives."""

import math
import random
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.served import SHARD, request
from wakupush.devnet.demo import messages
from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import packed_requests, requests
from wakupush.protocol.grants import grant
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey
from wakupush.server.schedule.prune import prune
from wakupush.server.upkeep import pack_requests

AT_REST = Identity.of(PrivateKey(b"\1" * 32)).at_rest
PHONE = "3f4a7c02-11a9-496c-a63a-54582dca8cef"
OTHER_TOKEN = "00000000-0000-4000-8000-000000000001"
MONTH = 30 * 86_400


def admit(connection, ids, *, age):
    """Remember requests as they were admitted some seconds ago."""
    connection.execute(
        "INSERT INTO admitted_requests (message_id, succeeded, admitted_at)"
        " SELECT substr(id, 1, 16), '1', now() - %s * interval '1 second' FROM unnest(%s::bytea[]) AS id",
        [age, ids],
    )


def pack(connection, *, most=10_000):
    total = 0
    while True:
        with connection.transaction():
            packed = packed_requests.pack(connection, AT_REST, keep=MONTH, most=most)
        if not packed:
            return total
        total += packed


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


@pytest.mark.parametrize("days", [1, 29, 31, 62, 200, 399])
def test_a_replay_pushes_nothing_while_a_token_lives(server, client, days):
    content = server.register(client, installation_id=PHONE)
    server.handle(DISPATCH, sent := request(client, server, content))
    assert len(server.pushes()) == 1
    make_old(server, days=days)
    server.rows("DELETE FROM deliveries RETURNING 1")  # they go after a day
    assert pack_requests(server.context) == (1 if days > 30 else 0)
    prune(server.context)
    send_again(server, sent)
    assert server.pushes() == []
    assert server.rows("SELECT count(*) FROM deliveries") == [(0,)]
    assert server.events("refused") == ([("request_over", None)] if days > 30 else [])


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


# Packing


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_id_is_found_after_it_was_packed_and_no_other(connection, data):
    connection.execute("TRUNCATE packed_requests, packed_months, admitted_requests")
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    known, others = set(), [chance.randbytes(32) for _ in range(200)]
    for _ in range(data.draw(st.integers(1, 4))):
        ids = [chance.randbytes(32) for _ in range(data.draw(st.sampled_from([1, 2, 100, 3000])))]
        admit(connection, ids, age=data.draw(st.integers(MONTH + 60, 400 * 86_400)))
        assert pack(connection, most=data.draw(st.sampled_from([50, 1000, 10_000]))) == len(ids)
        known.update(ids)
    assert packed_requests.find(connection, [*known, *others], AT_REST) == known
    assert connection.execute("SELECT count(*) FROM admitted_requests").fetchone() == (0,)


def test_young_ids_stay_rows(connection):
    young, old = random.randbytes(32), random.randbytes(32)
    admit(connection, [young], age=MONTH - 3600)
    admit(connection, [old], age=MONTH + 3600)
    assert packed_requests.are_due(connection, MONTH)
    assert pack(connection) == 1
    assert not packed_requests.are_due(connection, MONTH)
    assert requests.admitted(connection, [young, old])[0].keys() == {young}
    assert packed_requests.find(connection, [young, old], AT_REST) == {old}


def test_ids_take_few_bytes_and_rows_are_of_one_size(connection):
    ids = [random.randbytes(32) for _ in range(40_000)]
    admit(connection, ids, age=MONTH + 86_400)
    connection.execute("VACUUM admitted_requests")
    before = connection.execute("SELECT pg_total_relation_size('admitted_requests')").fetchone()[0]
    assert pack(connection) == len(ids)
    [(rows, largest, size)] = connection.execute(
        "SELECT count(*), max(octet_length(digests)), sum(pg_column_size(packed_requests.*)) FROM packed_requests"
    ).fetchall()
    assert rows == 2 ** math.floor(math.log2(10_000 / packed_requests.ROW_DIGESTS)) == 64
    assert largest < 2 * 6 * len(ids) / rows
    assert size / len(ids) < 8
    assert before / len(ids) > 90


def test_two_who_pack_do_not_lose_any(dsn, connection):
    ids = [random.randbytes(32) for _ in range(50)]
    admit(connection, ids, age=MONTH + 60)
    with psycopg.connect(dsn) as first, psycopg.connect(dsn) as second:
        assert packed_requests.pack(first, AT_REST, keep=MONTH, most=100) == 50
        assert packed_requests.pack(second, AT_REST, keep=MONTH, most=100) == 0  # it is left to the first
        first.rollback()
        second.rollback()
        assert packed_requests.pack(second, AT_REST, keep=MONTH, most=100) == 50
        second.commit()
    assert packed_requests.find(connection, ids, AT_REST) == set(ids)


def test_months_are_forgotten_after_400_days(server):
    with server.context.pool.connection() as connection:
        for days in (500, 431, 380):
            admit(connection, [random.randbytes(32)], age=days * 86_400)
        while packed_requests.pack(connection, AT_REST, keep=MONTH, most=10):
            pass
        assert len(packed_requests.months_of(connection)) == 3
    prune(server.context)
    oldest = (datetime.now(UTC).date() - timedelta(days=400)).replace(day=1)
    with server.context.pool.connection() as connection:
        assert all(isinstance(month, date) and month >= oldest for month in packed_requests.months_of(connection))
        assert len(packed_requests.months_of(connection)) == 1
