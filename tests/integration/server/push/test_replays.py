"""A recorded push request stays dead while its id is kept, and an honest one lives."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from support.served import SHARD, request
from wakupush.devnet import messages
from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH, REGISTRATION
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import maintenance, requests
from wakupush.protocol.grants import grant
from wakupush.protocol.hashing import message_hash
from wakupush.server.beat.retention import prune

PHONE = "3f4a7c02-11a9-496c-a63a-54582dca8cef"
OTHER_TOKEN = "00000000-0000-4000-8000-000000000001"


def weeks_ago(weeks):
    """Return the Monday of that week."""
    today = datetime.now(UTC).date()
    return today - timedelta(days=today.weekday() + 7 * weeks)


def make_old(server, *, weeks):
    """Move what is remembered into an earlier week, and delete the deliveries, which go after a day."""
    with server.context.pool.connection() as connection:
        connection.autocommit = True
        maintenance.create_partitions(connection, weeks_ago(weeks))
        connection.execute("UPDATE admitted_requests SET week = %s", [weeks_ago(weeks)])
        connection.execute("DELETE FROM deliveries")
        connection.autocommit = False


def send_again(server, message):
    """Send a recorded request in a new envelope: its time and payload are the stranger's, what is sealed is not."""
    copy = WakuMessage(
        payload=message.payload,
        content_topic=message.content_topic,
        timestamp=message.timestamp + random.randrange(1, 10**9),
    )
    server.handle(DISPATCH, copy)


def remembered_rows(server):
    return server.rows("SELECT week, succeeded, expired FROM admitted_requests ORDER BY week")


@pytest.mark.parametrize("weeks", [0, 1, 4])
def test_a_replay_pushes_nothing_while_its_id_is_kept(server, client, weeks):
    content = server.register(client, installation_id=PHONE)
    server.handle(DISPATCH, message := request(client, server, content))
    assert len(server.pushes()) == 1
    make_old(server, weeks=weeks)
    prune(server.context)
    send_again(server, message)
    assert server.pushes() == []
    assert remembered_rows(server) == [(weeks_ago(weeks), "1", False)]


def test_a_replay_of_a_forgotten_request_pushes_once_more(server, client):
    content = server.register(client, installation_id=PHONE)
    server.handle(DISPATCH, message := request(client, server, content))
    make_old(server, weeks=6)
    prune(server.context)
    assert remembered_rows(server) == []
    send_again(server, message), send_again(server, message)
    assert len(server.pushes()) == 2
    assert remembered_rows(server) == [(weeks_ago(0), "1", False)]


def test_envelopes_at_the_turn_of_a_week_push_once(server, client):
    """Each transaction adds a row in its own week, so only the delivery key holds the two apart."""
    content = server.register(client, installation_id=PHONE)
    server.handle(DISPATCH, message := request(client, server, content))
    with server.context.pool.connection() as connection:
        rows = connection.execute("DELETE FROM admitted_requests RETURNING message_id, succeeded").fetchall()
    send_again(server, message)
    with server.context.pool.connection() as connection:
        for row in rows:
            connection.execute(
                "INSERT INTO admitted_requests (message_id, week, succeeded) VALUES (%s, %s, %s)",
                [row[0], weeks_ago(1), row[1]],
            )
    assert server.outcomes(client) == [["success"]] * 2
    assert len(server.pushes()) == 1
    assert [week for week, *_ in remembered_rows(server)] == [weeks_ago(1), weeks_ago(0)]
    send_again(server, message)
    assert server.outcomes(client) == [["success"]]
    assert len(remembered_rows(server)) == 2


def test_a_replay_fails_once_the_access_token_changed(server, client):
    content = server.register(client, installation_id=PHONE)
    server.handle(DISPATCH, message := request(client, server, content))
    server.outcomes(client), server.pushes()
    newer = messages.registration(client, server.key, installation_id=PHONE, version=2, access_token=OTHER_TOKEN)
    newer.grant = grant(client, server.key, OTHER_TOKEN)
    server.handle(REGISTRATION, messages.register(client, server.key, newer))
    server.outcomes(client)
    server.rows("DELETE FROM admitted_requests RETURNING 1")
    send_again(server, message)
    assert server.outcomes(client) == [["WRONG_TOKEN"]]
    assert server.pushes() == []


# What expired


def late(server, message, *, live, by=700):
    arrival_time = server.context.now() - by
    entry = Entry(SHARD, message_hash(SHARD, message), arrival_time, message, live=live)
    server.run(DISPATCH, [entry])


def test_what_our_own_queues_let_expire_is_never_pushed(server, client):
    content = server.register(client, installation_id=PHONE)
    late(server, message := request(client, server, content), live=True)
    assert server.events("expired") == [("request_expired", None)]
    send_again(server, message)
    assert server.pushes() == []
    assert server.answers(client) == []
    assert server.events("refused") == [("request_over", None)]


def test_a_late_copy_does_not_end_an_admitted_request(server, client):
    content = server.register(client, installation_id=PHONE)
    server.handle(DISPATCH, message := request(client, server, content))
    make_old(server, weeks=1)
    copy = WakuMessage(payload=message.payload, content_topic=message.content_topic, timestamp=message.timestamp + 1)
    late(server, copy, live=True)
    assert remembered_rows(server) == [(weeks_ago(1), "1", False)]


def test_late_copy_beside_a_request_does_not_end_it(server, client, monkeypatch):
    content = server.register(client, installation_id=PHONE)
    message = request(client, server, content)
    copy = WakuMessage(payload=message.payload, content_topic=message.content_topic, timestamp=message.timestamp + 1)
    late(server, copy, live=True)
    with monkeypatch.context() as before_that_was_committed:
        before_that_was_committed.setattr(requests, "admitted", lambda *_: ({}, set()))
        server.handle(DISPATCH, message)
    assert [(succeeded, expired) for _, succeeded, expired in remembered_rows(server)] == [("1", False)]


def test_an_old_time_in_a_copy_spares_the_original(server, client):
    content = server.register(client, installation_id=PHONE)
    late(server, message := request(client, server, content), live=False)
    assert server.events("expired") == [("request_expired", None)]
    send_again(server, message)
    assert server.outcomes(client) == [["success"]]
    assert len(server.pushes()) == 1


@pytest.mark.parametrize("fields", [{}, {"enabled": False}])
def test_filtered_requests_repeat_as_seldom_as_others(server, client, fields):
    """Their ids are remembered, too: or the number of answers would show who is filtered."""
    content = server.register(client, **fields)
    server.handle(DISPATCH, message := request(client, server, content))
    for _ in range(5):
        send_again(server, message)
    assert server.outcomes(client) == [["success"]] * 4


def test_failed_items_are_not_remembered(server, client):
    content = server.register(client, installation_id=PHONE)
    late(server, request(client, server, content, access_token="wrong"), live=True)
    late(server, request(client, server, content, installation_id=OTHER_TOKEN), live=True)
    assert len(server.events("expired")) == 2
    assert remembered_rows(server) == []
