"""Registrations, handled on a real Postgres, Redis and node: watched, answered, counted, once."""

import psycopg

from support.served import count_watched, rewrapped
from wakupush.devnet import messages
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.protocol import topics
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import watched
from wakupush.server.engine import run as engine_run
from wakupush.server.engine.outbox import Outbox


def test_the_topics_are_watched_before_the_answer_leaves(server, client, monkeypatch):
    watching = []
    monkeypatch.setattr(Outbox, "publish", lambda *_: watching.append(count_watched(server.context.redis)))
    content = messages.registration(client, server.key)
    server.handle(REGISTRATION, messages.register(client, server.key, content))
    assert watching == [2]
    names = topics.query_topics(client.public_key.key_hash)
    assert watched.among(server.context.redis, [topics.topic(name) for name in names]) == set(map(topics.topic, names))


def test_a_repeat_is_answered_and_heals_the_watched_topics(server, client):
    message = messages.register(client, server.key, messages.registration(client, server.key))
    server.handle(REGISTRATION, message)
    server.context.redis.delete(watched.KEY)
    for _ in range(5):
        server.handle(REGISTRATION, rewrapped(message, server))
    assert server.outcomes(client) == ["success"] * 4
    assert count_watched(server.context.redis) == 2
    assert ("repeated_too_often", None) in server.events("refused")


def test_a_transaction_that_is_repeated_counts_for_limits_once(open_server, client, monkeypatch):
    server = open_server(limits={"pushes_per_device_per_minute": 2, "answer_bytes_per_user_per_minute": 1000})
    collisions = []

    def collide(*arguments, **named):
        collisions.append(arguments)
        if len(collisions) % 4:
            raise psycopg.errors.SerializationFailure
        return store(*arguments, **named)

    store = engine_run.store
    monkeypatch.setattr(engine_run, "store", collide)
    registering = messages.register(client, server.key, content := messages.registration(client, server.key))
    asking = messages.request(client, server.key, [messages.notification(client.public_key.key_hash, content)] * 2)
    for queue, message in ((REGISTRATION, registering), (DISPATCH, asking)):
        for _ in range(2):
            server.handle(queue, rewrapped(message, server))
    server.derive()
    for _ in range(2):
        server.handle(QUERY, messages.query(client, client.public_key.key_hash))
    assert len(collisions) == 6 * 4
    assert server.events("refused") == []
    assert server.rows("SELECT count(*) FROM waiting_queries") == [(0,)]
    # One that is over the limit of its device is pushed without its content.
    assert "0x" not in {push.notification["data"]["message"] for push in server.pushes()}


def test_installations_per_key_are_limited(open_server, client):
    server = open_server(limits={"installations_per_key": 2})
    contents = [messages.registration(client, server.key) for _ in range(3)]
    server.handle(REGISTRATION, *(messages.register(client, server.key, content) for content in contents))
    assert sorted(server.outcomes(client)) == ["INTERNAL_ERROR", "success", "success"]
    unregistration = PushNotificationRegistration(
        unregister=True, version=2, installation_id=contents[0].installation_id
    )
    server.handle(REGISTRATION, messages.register(client, server.key, unregistration))
    server.handle(REGISTRATION, messages.register(client, server.key, contents[2]))
    assert server.outcomes(client) == ["success", "success"]


def test_two_workers_with_one_batch_answer_once(server):
    clients = [PrivateKey.generate() for _ in range(20)]
    registrations = [messages.register(one, server.key, messages.registration(one, server.key)) for one in clients]
    submit = server.threads.submit
    with_two = [submit(server.handle, REGISTRATION, *part) for part in (registrations, registrations[::-1])]
    for future in with_two:
        future.result()
    assert server.outcomes(*clients) == ["success"] * 20
