"""Pruning forgets registrations that nobody can use any more, on a real Postgres."""

import pytest

from support.served import count_watched, rewrapped
from wakupush.devnet.demo import messages
from wakupush.model.queues import REGISTRATION
from wakupush.pb.push_notification_pb2 import (
    PushNotificationRegistration,
)
from wakupush.server.schedule.prune import prune


def test_pruning_stops_watching_whom_nobody_can_notify(server, client):
    content = server.register(client)
    prune(server.context)
    assert count_watched(server.context.redis) == 2
    gone = PushNotificationRegistration(unregister=True, version=2, installation_id=content.installation_id)
    server.handle(REGISTRATION, messages.register(client, server.key, gone))
    prune(server.context)
    assert count_watched(server.context.redis) == 0
    assert server.rows("SELECT count(*) FROM query_topics") == [(0,)]


@pytest.mark.parametrize("days", [None, 90])
def test_pruning_takes_dead_registrations_only_where_that_is_asked_for(open_server, client, days):
    server = open_server(**({"retention": {"registrations": days * 86_400}} if days else {}))
    sent = messages.register(client, server.key, messages.registration(client, server.key))
    server.handle(REGISTRATION, sent)
    server.rows("UPDATE registrations SET token_died_at = now() - interval '91 days' RETURNING 1")
    prune(server.context)
    assert server.rows("SELECT registered, version FROM registrations") == [(days is None, 1)]
    assert count_watched(server.context.redis) == (2 if days is None else 0)
    server.handle(REGISTRATION, rewrapped(sent, server))
    assert server.outcomes(client) == ["success", "VERSION_MISMATCH"]
