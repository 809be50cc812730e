"""Limits of a server, on a real Postgres and a real Redis; what is by chance in them is drawn by the fixture."""

import itertools
import os
import time
from collections import Counter
from dataclasses import replace

import psycopg
import pytest

from support.served import SHARD, contacts, prove
from wakupush.devnet import messages
from wakupush.ingest.enqueue import Enqueuer
from wakupush.ingest.routing import Routes
from wakupush.model.entries import Entry
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.pb.push_notification_pb2 import PushNotificationRegistration
from wakupush.postgres import registrations
from wakupush.protocol import payload, topics
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import unopened
from wakupush.server.beat.queries import derive_keys, enqueue_waiting, trim_waiting
from wakupush.server.engine.run import run

# Registrations.


def test_installations_of_each_key_an_hour_are_limited(open_server, client):
    server = open_server(limits={"installations_per_key_per_hour": 2})
    other = PrivateKey.generate()
    unregistrations = []
    for _ in range(3):
        content = messages.registration(client, server.key)
        unregistrations.append(
            PushNotificationRegistration(unregister=True, version=2, installation_id=content.installation_id)
        )
        server.handle(REGISTRATION, messages.register(client, server.key, content))
        server.handle(REGISTRATION, messages.register(client, server.key, unregistrations[-1]))
    # The third one, and its end, which would leave a row, too.
    assert server.outcomes(client) == ["success"] * 4 + ["INTERNAL_ERROR"] * 2
    server.register(other)


def test_returned_task_counts_once(open_server, client, monkeypatch):
    """A first registration that came back during ten minutes of an outage counted for fifty."""
    server = open_server(limits={"installations_per_key_per_hour": 2})
    message = messages.register(client, server.key, messages.registration(client, server.key))
    with monkeypatch.context() as outage:
        outage.setattr("wakupush.server.engine.run.store", fail)
        for _ in range(5):
            with pytest.raises(psycopg.OperationalError):
                run(server.context, REGISTRATION, [Entry(SHARD, message_hash(SHARD, message), time.time(), message)])
    server.handle(REGISTRATION, message)
    assert server.outcomes(client) == ["success"]
    assert server.counted("installations") == 1


def fail(*_, **__):
    raise psycopg.OperationalError


def test_keys_that_strangers_make_up_leave_no_counters(open_server):
    server = open_server(limits={"first_registrations_per_hour": 2})
    strangers = [PrivateKey.generate() for _ in range(6)]
    for stranger in strangers[:3]:
        content = messages.registration(stranger, server.key)
        server.handle(REGISTRATION, messages.register(stranger, server.key, content))
    unregistration = PushNotificationRegistration(unregister=True, version=2, installation_id=content.installation_id)
    server.handle(
        REGISTRATION, *(messages.register(stranger, server.key, unregistration) for stranger in strangers[3:])
    )
    assert sorted(server.outcomes(*strangers)) == ["INTERNAL_ERROR"] * 4 + ["success"] * 2
    assert len(server.context.redis.keys("wakupush:limit:installations:*")) == 2, "of those that were let through"


def waiting_queries(server):
    """Return which queries wait, by their content topics, and whether that is for a key."""
    return server.rows("SELECT content_topic, due_at IS NULL FROM waiting_queries ORDER BY content_topic")


def handle_waiting(server):
    """Handle what the schedule enqueues, and return how much it was."""
    count = enqueue_waiting(server.context)
    server.handle_enqueued(QUERY)
    return count


def register_unseen(server, user):
    """Register a user for whose query topics no key is derived yet."""
    content = messages.registration(user, server.key)
    server.handle(REGISTRATION, messages.register(user, server.key, content))
    assert server.outcomes(user) == ["success"]
    return messages.query(PrivateKey.generate(), user.public_key.key_hash).content_topic


def test_a_query_waits_aside_until_its_key_is_derived(server, client, monkeypatch):
    topic = register_unseen(server, client)
    query = messages.query(client, client.public_key.key_hash)
    with monkeypatch.context() as patch:
        patch.setattr(topics, "symmetric_key", None)  # no worker derives
        server.handle(QUERY, query)
        server.handle(QUERY, query)
    assert server.answers(client) == []
    assert waiting_queries(server) == [(topic, True)]
    assert server.context.redis.llen(QUERY.name) == 0  # it goes round in no queue
    assert enqueue_waiting(server.context) == 0
    assert server.events("received")[1:] == []
    server.derive()
    assert handle_waiting(server) == 1
    assert len(server.answers(client)) == 1
    assert waiting_queries(server) == []
    server.handle(QUERY, query)
    assert server.answers(client) == []  # it is in the ledger again


def test_keys_are_derived_before_anybody_asks(server, client):
    register_unseen(server, client)
    assert derive_keys(server.context) == 1
    assert derive_keys(server.context) == 0  # of the topic that clients use
    server.handle(QUERY, messages.query(client, client.public_key.key_hash))
    assert len(server.answers(client)) == 1


def test_queries_on_derived_keys_do_not_notice_junk(server, client):
    """Junk is put aside with its ciphertext; no worker derives, and the queue holds nothing of it."""
    server.register(client)
    strangers = [PrivateKey.generate() for _ in range(3)]
    junk = [
        replace(messages.query(client, stranger.public_key.key_hash), payload=os.urandom(300), content_topic=topic)
        for stranger in strangers
        for topic in [register_unseen(server, stranger)]
        for _ in range(5)
    ]
    server.handle(QUERY, *junk[:8], messages.query(client, client.public_key.key_hash), *junk[8:])
    assert len(server.answers(client)) == 1
    assert len(waiting_queries(server)) == len(junk)
    assert server.context.redis.llen(QUERY.name) == 0
    server.derive()
    while handle_waiting(server):
        pass
    assert server.events("foreign") == [("not_for_us", None)] * len(junk)
    assert waiting_queries(server) == []


def test_deriving_has_a_bounded_share_of_a_core(open_server, monkeypatch):
    server = open_server(worker={"key_derivation_share": 0.25})
    for _ in range(2):
        register_unseen(server, PrivateKey.generate())
    clock = itertools.count(step=0.02)
    rests = []
    monkeypatch.setattr(time, "thread_time", lambda: next(clock))
    monkeypatch.setattr(time, "sleep", rests.append)
    assert derive_keys(server.context) == 2
    assert rests == pytest.approx([0.06] * 2)


def add_topics(server, count, *, prefixed="false", topic="substr(key, 1, 4)", derived=False):
    """Add the query topics of made up users who registered yesterday."""
    server.rows(
        "INSERT INTO query_topics (key_hash, prefixed, topic, symmetric_key, added_at)"
        f" SELECT key, {prefixed}, {topic}, {'substr(key, 1, 32)' if derived else 'NULL'}, current_date - 1"
        " FROM generate_series(1, %s) AS number, sha512(number::text::bytea) AS key RETURNING 1",
        count,
    )


def let_junk_wait(server):
    """Let a message wait on each topic that there is."""
    server.rows(
        "INSERT INTO waiting_queries"
        " (message_hash, pubsub_topic, content_topic, payload, message_timestamp, meta, seen_at)"
        " SELECT sha256(topic), %s, '/waku/1/0x' || encode(topic, 'hex') || '/rfc26', '', 1, '', now()"
        " FROM query_topics ON CONFLICT DO NOTHING RETURNING 1",
        SHARD,
    )


def ask_for_an_older_user(server, client):
    """Ask for a user after whom others registered, who are not asked for; nobody's key is derived."""
    for user in (client, *(PrivateKey.generate() for _ in range(4))):
        register_unseen(server, user)
    yesterday = "UPDATE query_topics SET added_at = current_date - 1 WHERE key_hash = %s RETURNING 1"
    server.rows(yesterday, client.public_key.key_hash)
    server.handle(QUERY, messages.query(client, client.public_key.key_hash))


def test_junk_does_not_delay_queries_for_new_users(open_server, client):
    """A fifth of a slow core derives 24 keys in 3 seconds."""
    server = open_server(worker={"key_derivation_share": 1.0})
    add_topics(server, 10_000, prefixed="mod(number, 2) = 0")
    let_junk_wait(server)
    register_unseen(server, client)
    server.handle(QUERY, messages.query(client, client.public_key.key_hash))
    derived, answers = 0, []
    while not answers and derived < 24:
        derived += derive_keys(server.context)
        handle_waiting(server)
        answers = server.answers(client)
    assert len(answers) == 1


def test_topics_of_clients_come_before_those_with_0x(open_server, client):
    """Nobody derives the latter ahead: junk can wait on each user's."""
    server = open_server(worker={"key_derivation_share": 1.0})
    add_topics(server, 1_000, prefixed="true")
    let_junk_wait(server)
    ask_for_an_older_user(server, client)
    derive_keys(server.context)
    handle_waiting(server)
    assert len(server.answers(client)) == 1


def test_a_crowded_topic_does_not_delay_others(open_server, client):
    server = open_server(worker={"key_derivation_share": 1.0})
    add_topics(server, 200, topic="'\\x11223344'")
    let_junk_wait(server)
    ask_for_an_older_user(server, client)
    derive_keys(server.context)
    handle_waiting(server)
    assert len(server.answers(client)) == 1
    assert server.rows("SELECT count(symmetric_key) FROM query_topics WHERE topic = '\\x11223344'") == [(1,)]


def test_a_message_is_tried_with_few_keys_of_a_topic(server, client, monkeypatch):
    """A user with a device that pushes reach is among them."""
    registered = server.register(client)
    prove(client, server, registered)
    server.rows("UPDATE query_topics SET topic = '\\x11223344' WHERE NOT prefixed RETURNING 1")
    add_topics(server, 200, topic="'\\x11223344'", derived=True)
    tries = []
    open_symmetric = payload.open_symmetric
    monkeypatch.setattr(payload, "open_symmetric", lambda *sealed: tries.append(sealed) or open_symmetric(*sealed))
    first = replace(messages.query(client, client.public_key.key_hash), content_topic="/waku/1/0x11223344/rfc26")
    server.handle(QUERY, replace(first, payload=os.urandom(300)))
    assert len(tries) == 16
    again = replace(messages.query(client, client.public_key.key_hash), content_topic="/waku/1/0x11223344/rfc26")
    for query in (first, again):
        server.handle(QUERY, query)
        assert len(server.answers(client)) == 1


def test_what_waits_is_bounded_and_chance_decides_what_goes(open_server, client, monkeypatch):
    """Whoever came first: of old and of new ones some stay."""
    monkeypatch.setattr("wakupush.server.beat.queries.QUERIES", 60)
    server = open_server()
    topic = register_unseen(server, client)
    queries = [
        replace(messages.query(client, client.public_key.key_hash), payload=bytes([number]) * 300, content_topic=topic)
        for number in range(120)
    ]
    for half in (queries[:60], queries[60:]):
        server.handle(QUERY, *half)
    assert trim_waiting(server.context) == 60
    stayed = {payload[0] for (payload,) in server.rows("SELECT payload FROM waiting_queries")}
    assert 10 < sum(number < 60 for number in stayed) < 50
    assert len(stayed) == 60
    assert trim_waiting(server.context) == 0
    monkeypatch.setattr("wakupush.server.beat.queries.QUERY_BYTES", 3_100)
    assert trim_waiting(server.context) == 50
    server.rows("UPDATE waiting_queries SET seen_at = now() - interval '3601 seconds' RETURNING 1")
    assert trim_waiting(server.context) == 10


# Devices and answers.


def test_pushes_of_a_device_a_minute_are_limited(open_server, client, monkeypatch):
    """Beyond that it is pushed once without content, whoever registered it, and all is answered with success."""
    server = open_server(limits={"pushes_per_device_per_minute": 2})
    monkeypatch.setattr(server.context.limiter, "_now", lambda: 600.0)
    stranger = PrivateKey.generate()
    phone, tablet = server.register(client, device_token="phone"), server.register(client, device_token="tablet")
    theirs = server.register(stranger, device_token="phone")
    fields = {"chat_id": b"chat", "message": b"message"}
    items = [
        messages.notification(client.public_key.key_hash, each, **fields) for each in (phone, phone, phone, tablet)
    ]
    server.handle(DISPATCH, messages.request(client, server.key, items))
    item = messages.notification(stranger.public_key.key_hash, theirs, **fields)
    server.handle(DISPATCH, messages.request(client, server.key, [item]))
    server.handle(DISPATCH, messages.request(client, server.key, [items[0]]))
    assert server.outcomes(client) == [["success"] * 4, ["success"], ["success"]]
    assert server.events("refused") == []
    pushes = Counter(
        (push.notification["tokens"][0], *(push.notification["data"][key] for key in fields))
        for push in server.pushes()
    )
    whole = "0x" + b"chat".hex(), "0x" + b"message".hex()
    assert pushes == {("phone", *whole): 1, ("phone", "0x", "0x"): 1, ("tablet", *whole): 1}


def test_answers_about_a_user_are_limited(open_server, client):
    """They are answered later, by chance; other users are asked for as before."""
    server = open_server(limits={"answer_bytes_per_user_per_minute": 40_000})
    listed_user, other_user = PrivateKey.generate(), PrivateKey.generate()
    server.register(listed_user, **contacts(200))
    server.register(other_user)
    for user in (*[listed_user] * 6, other_user):
        server.handle(QUERY, messages.query(client, user.public_key.key_hash))
    # Three would fit; five a minute are answered in any case.
    assert len(server.answers(client)) == 6
    assert [for_key for _, for_key in waiting_queries(server)] == [False]
    [(wait,)] = server.rows("SELECT extract(epoch FROM due_at - now())::float8 FROM waiting_queries")
    assert -60 < wait < 1200
    assert server.events("refused") == []
    server.rows("UPDATE waiting_queries SET due_at = now() RETURNING 1")
    assert handle_waiting(server) == 1
    assert len(waiting_queries(server)) == 1  # chance said no once more
    server.context.redis.flushall()
    server.rows("UPDATE waiting_queries SET due_at = now() RETURNING 1")
    assert handle_waiting(server) == 1
    assert (len(server.answers(client)), waiting_queries(server)) == (1, [])


def test_what_waits_is_not_loaded(open_server, client, monkeypatch):
    server = open_server(limits={"answer_bytes_per_minute": 1000})
    server.register(client, **contacts(200))
    loaded = []
    devices = registrations.devices
    monkeypatch.setattr(registrations, "devices", lambda _, keys: loaded.append(keys) or devices(_, keys))
    server.handle(QUERY, messages.query(client, client.public_key.key_hash))
    assert (loaded, len(waiting_queries(server))) == ([], 1)
    assert server.context.redis.keys("wakupush:limit:user_answers:*") == [], "and charged to no user"


# Topics whose traffic is not for us.


def test_junk_on_a_topic_gets_a_bounded_share(open_server, client, redis):
    """Queries on it are among what chance takes; those on other topics are all taken."""
    server = open_server(ingest={"topic_messages_per_minute": 20})
    busy, quiet = PrivateKey.generate(), PrivateKey.generate()
    for user in (busy, quiet):
        server.register(user)

    def entries(user, count):
        queries = [messages.query(client, user.public_key.key_hash) for _ in range(count)]
        return [Entry(SHARD, message_hash(SHARD, each), time.time(), each) for each in queries]

    topic = entries(busy, 1)[0].message.content_topic
    settings = server.context.settings.ingest
    enqueuer = Enqueuer(server.context.app, redis, Routes.of(server.key), settings)
    assert enqueuer.enqueue(entries(busy, 50)).sent == 50
    junk = [replace(messages.query(client, busy.public_key.key_hash), payload=os.urandom(300)) for _ in range(9)]
    server.handle(QUERY, *junk)
    assert unopened.marked(redis, [topic]) == set()
    server.handle(QUERY, *(replace(each, payload=os.urandom(300)) for each in junk))
    assert unopened.marked(redis, [topic]) == {topic}
    assert enqueuer.enqueue(entries(quiet, 50)).sent == 50
    enqueued_count = enqueuer.enqueue(entries(busy, 500)).sent
    assert 20 <= enqueued_count < 20 * 10  # 20 and the logarithm of what is too much
    redis.delete(QUERY.name)
    server.handle(QUERY, messages.query(client, busy.public_key.key_hash))
    assert len(server.answers(client)) == 1
    server.register(PrivateKey.generate())
