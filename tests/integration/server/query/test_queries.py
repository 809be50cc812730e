"""Queries, handled on a real Postgres, Redis and node: who is told what, and how much at once."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from structlog.testing import capture_logs

from support.served import contacts, request, waiting
from wakupush.devnet import messages
from wakupush.devnet.processes import wait_until
from wakupush.model.queues import QUERY
from wakupush.pb.push_notification_pb2 import PushNotificationQueryResponse
from wakupush.protocol import payload, topics
from wakupush.protocol.keys import PrivateKey
from wakupush.redis.sending import send_entries
from wakupush.server.beat import queries
from wakupush.server.beat.queries import enqueue_waiting


def test_users_whose_topics_collide_are_told_apart(server, client):
    users = [PrivateKey.generate() for _ in range(2)]
    for user in users:
        server.register(user)
    server.rows("UPDATE query_topics SET topic = '\\x11223344' RETURNING 1")
    for user in users:
        query = replace(messages.query(client, user.public_key.key_hash), content_topic="/waku/1/0x11223344/rfc26")
        server.handle(QUERY, query)
        [reply] = server.answers(client)
        [info] = PushNotificationQueryResponse.FromString(reply.inner).info
        assert info.public_key == user.public_key.key_hash


def test_both_spellings_of_the_query_topic_are_answered(server, client):
    user = PrivateKey.generate()
    server.register(user)
    name = topics.query_topics(user.public_key.key_hash)[1]
    plain = messages.query(client, user.public_key.key_hash)
    data = payload.open_symmetric(plain.payload, topics.symmetric_key(name.removeprefix("0x"))).data
    prefixed = replace(
        plain,
        payload=payload.seal_symmetric(data, topics.symmetric_key(name), client),
        content_topic=topics.content_topic(name),
    )
    server.handle(QUERY, plain, prefixed)
    assert len(server.answers(client)) == 1
    server.derive()
    assert enqueue_waiting(server.context) == 1
    server.handle_enqueued(QUERY)
    assert len(server.answers(client)) == 1


def test_query_that_waited_is_no_copy(server, client, monkeypatch):
    """A worker takes it before the transaction has ended that takes it out of the ledger."""
    user = PrivateKey.generate()
    server.register(user)
    server.rows("UPDATE query_topics SET symmetric_key = NULL RETURNING 1")
    server.handle(QUERY, messages.query(client, user.public_key.key_hash), seen=time.time() - 100)
    server.derive()
    waiting_workers = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with ThreadPoolExecutor(1) as threads:

        def send(*args, **options):
            send_entries(*args, **options)
            worker = threads.submit(server.handle_enqueued, QUERY)
            wait_until(
                lambda: worker.done() or server.rows(waiting_workers) == [(1,)],
                timeout=20,
                what="the worker has dropped the query, or waits",
            )

        monkeypatch.setattr(queries, "send_entries", send)
        assert enqueue_waiting(server.context) == 1
    assert len(server.answers(client)) == 1


def test_too_many_keys_are_met_by_silence(server, client):
    user = PrivateKey.generate()
    content = server.register(user)
    name, _ = topics.query_topics(user.public_key.key_hash)
    key = topics.symmetric_key(name)
    many = messages.query(client, user.public_key.key_hash, *[bytes(64)] * 1000)
    stray = request(user, server, content)
    data = payload.open_asymmetric(stray.payload, server.context.identity.private_key).data
    stray = replace(many, payload=payload.seal_symmetric(data, key, client))
    server.handle(QUERY, many, stray, replace(many, payload=b"garbage"), replace(many, version=2, timestamp=2))
    assert server.answers(client) == []
    assert sorted(server.events("refused")) == [("query_limit", None)] * 2 + [("type_unsupported", None)]
    assert server.events("foreign") == [("not_for_us", None)]


def test_answers_to_queries_are_limited(open_server, client, monkeypatch):
    """Also where what is known was stored under other limits, and by however many devices."""
    monkeypatch.setattr("wakupush.server.query.charge.ANSWER_BYTES", 20_000)
    server = open_server()
    several, one = PrivateKey.generate(), PrivateKey.generate()
    for _ in range(3):
        server.register(several, **contacts(100))
    server.register(one, **contacts(200))
    for keys in ((several,), (one, several), (one,)):
        server.handle(QUERY, messages.query(client, *(key.public_key.key_hash for key in keys)))
    [reply] = server.answers(client)
    [info] = PushNotificationQueryResponse.FromString(reply.inner).info
    assert info.public_key == one.public_key.key_hash
    assert server.events("refused") == [("query_limit", None)] * 2


def test_queries_beyond_the_answers_of_a_task_wait(open_server, client, monkeypatch):
    monkeypatch.setattr("wakupush.server.engine.run.TASK_BYTES", 20_000)
    server = open_server()
    user = PrivateKey.generate()
    server.register(user, **contacts(200))
    query_messages = [messages.query(client, user.public_key.key_hash) for _ in range(3)]
    server.handle(QUERY, query_messages[0])
    assert len(server.answers(client)) == 1
    count_before = server.counted("answers")
    with capture_logs() as logs:
        server.handle(QUERY, *query_messages[1:])
    assert server.counted("answers") == count_before + 1, "what waits is counted when it is answered"
    assert [(log["messages"], log["later"]) for log in logs if log["event"] == "task_cut"] == [(2, 1)]
    assert len(server.answers(client)) == 1
    assert waiting(server, QUERY) == [([query_messages[2].payload], {})]  # not alone: it is not to blame
    server.handle(QUERY, query_messages[2])
    assert len(server.answers(client)) == 1
