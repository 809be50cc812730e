"""The pool `rest`: what waits there, that its effects are those of the other pools, and what a full queue drops."""

import time
from dataclasses import replace

import psycopg
import pytest
from redis import Redis

from support.served import in_segments, request, waiting, work_off_rest
from wakupush.devnet import messages
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION, REST
from wakupush.postgres import message_segments
from wakupush.protocol import payload
from wakupush.protocol.keys import PrivateKey
from wakupush.redis import backlog, presence
from wakupush.redis.presence import Presence
from wakupush.runtime import metrics
from wakupush.server.engine import rest

ROLE = f"worker {REST}"


def announce(server, **checks):
    Presence(server.context.redis, ROLE, lambda: checks).write()
    server.context.rest._looked_at = float("-inf")


@pytest.fixture
def divided(server):
    """A server whose pool `rest` runs."""
    announce(server)
    return server


def length(server):
    return server.context.redis.llen(REST)


def register(server, client, **fields):
    content = messages.registration(client, server.key, **fields)
    server.handle(REGISTRATION, messages.register(client, server.key, content))
    return content


def test_without_the_pool_all_is_handled_at_once(server, client):
    register(server, client)
    assert (server.outcomes(client), length(server)) == (["success"], 0)


def test_a_busy_part_is_not_lost_beside_a_newcomer(divided, client, dsn):
    message = messages.register(client, divided.key, messages.registration(client, divided.key))
    first, second, *_ = in_segments(message, divided, 100, None)
    divided.handle(REGISTRATION, first)
    newcomer = PrivateKey.generate()
    other = messages.register(newcomer, divided.key, messages.registration(newcomer, divided.key))
    with psycopg.connect(dsn) as worker:
        names = set(divided.rows("SELECT signer, entire_message_hash FROM message_segments"))
        message_segments.lock(worker, names, waits=True)
        divided.handle(REGISTRATION, second, other)
    assert length(divided) == 1
    assert waiting(divided, REGISTRATION) == [([second.payload], {})]
    assert divided.rows("SELECT count(*) FROM ledger") == [(1,)]


def test_a_pool_that_is_gone_does_not_count(divided, client, monkeypatch):
    monkeypatch.setattr(presence, "GONE_SECONDS", -1.0)
    register(divided, client)
    assert (divided.outcomes(client), length(divided)) == (["success"], 0)


def test_a_pool_that_is_not_ready_does_not_count(server, client):
    announce(server, consuming=False)
    register(server, client)
    assert (server.outcomes(client), length(server)) == (["success"], 0)


def test_redis_failing_means_no_pool(divided):
    assert divided.context.rest.is_served()
    broken = replace(divided.context.rest, redis=Redis(port=1), _looked_at=float("-inf"))
    assert not broken.is_served()


def test_newcomers_wait_until_a_push_reached_them(divided, client):
    """Registration, query and push of a newcomer go through `rest`; after the push none does."""
    content = register(divided, client)
    assert divided.outcomes(client) == []
    assert work_off_rest(divided) == [REGISTRATION]
    assert divided.outcomes(client) == ["success"]
    divided.derive()

    divided.handle(QUERY, messages.query(client, client.public_key.key_hash))
    assert divided.answers(client) == []
    assert work_off_rest(divided) == [QUERY]
    assert [reply.type_name for reply in divided.answers(client)] == ["PUSH_NOTIFICATION_QUERY_RESPONSE"]

    divided.handle(DISPATCH, request(client, divided, content))
    assert divided.pushes() == []
    assert work_off_rest(divided) == [DISPATCH]
    assert (divided.outcomes(client), len(divided.pushes())) == ([["success"]], 1)

    again = messages.registration(client, divided.key, version=2, installation_id=content.installation_id)
    divided.handle(DISPATCH, request(client, divided, content))
    divided.handle(QUERY, messages.query(client, client.public_key.key_hash))
    divided.handle(REGISTRATION, messages.register(client, divided.key, again))
    assert length(divided) == 0
    assert len(divided.answers(client)) == 3


def test_rest_opens_nothing_again(divided, client, monkeypatch):
    content = register(divided, client)
    with monkeypatch.context() as patch:
        patch.setattr(payload, "open_asymmetric", None)
        assert work_off_rest(divided) == [REGISTRATION]
    divided.derive()
    divided.handle(QUERY, messages.query(client, client.public_key.key_hash))
    divided.handle(DISPATCH, request(client, divided, content))
    with monkeypatch.context() as patch:
        patch.setattr(payload, "open_asymmetric", None)
        patch.setattr(payload, "open_symmetric", None)
        assert work_off_rest(divided) == [QUERY, DISPATCH]
    assert (len(divided.answers(client)), len(divided.pushes())) == (3, 1)


def test_newcomers_on_another_topic_skip_their_queue(divided, client):
    content = messages.registration(client, divided.key)
    divided.handle(DISPATCH, messages.register(client, divided.key, content))
    assert divided.context.redis.llen(REGISTRATION.name) == 0
    assert work_off_rest(divided) == [REGISTRATION]
    divided.handle(DISPATCH, request(client, divided, content))
    work_off_rest(divided)
    assert divided.outcomes(client) == ["success", ["success"]]
    again = messages.registration(client, divided.key, version=2, installation_id=content.installation_id)
    divided.handle(DISPATCH, messages.register(client, divided.key, again))
    assert (length(divided), divided.context.redis.llen(REGISTRATION.name)) == (0, 1)
    divided.handle_enqueued(REGISTRATION)
    assert divided.outcomes(client) == ["success"]


def test_what_is_above_a_limit_waits_too(open_server, client):
    server = open_server(limits={"pushes_per_device_per_minute": 2})
    content = server.register(client)
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["success"]]
    announce(server)
    server.handle(DISPATCH, *(request(client, server, content) for _ in range(3)))
    assert (server.outcomes(client), work_off_rest(server)) == ([["success"]], [DISPATCH])
    assert server.outcomes(client) == [["success"]] * 2
    # Beyond the limit the device gets one notification a minute, without content.
    assert len(server.pushes()) == 3


def test_one_task_is_divided(divided, client):
    stranger = PrivateKey.generate()
    contents = [register(divided, key) for key in (client, stranger)]
    work_off_rest(divided)
    divided.handle(DISPATCH, request(client, divided, contents[0]))
    work_off_rest(divided)
    assert divided.outcomes(client, stranger) == ["success", "success", ["success"]]
    both = [request(key, divided, content) for key, content in zip((client, stranger), contents, strict=True)]
    divided.handle(DISPATCH, *both)
    assert (divided.outcomes(client), divided.outcomes(stranger)) == ([["success"]], [])
    assert work_off_rest(divided) == [DISPATCH]
    assert divided.outcomes(stranger) == [["success"]]
    assert len(divided.pushes()) == 3
    assert divided.rows("SELECT count(*) FROM ledger") == [(5,)]


def test_the_whole_of_segments_waits_too(divided, client):
    message = messages.register(client, divided.key, messages.registration(client, divided.key))
    for part in in_segments(message, divided, 100, client):
        divided.handle(REGISTRATION, part)
    assert divided.outcomes(client) == []
    assert work_off_rest(divided) == [REGISTRATION]
    assert divided.outcomes(client) == ["success"]
    assert divided.rows("SELECT count(*) FROM message_segments") == [(0,)]


def test_large_segments_are_joined_in_rest(divided, client, monkeypatch):
    """A stranger made a pool join 8 MB for each envelope around the last part, until `rest` got to the first."""
    monkeypatch.setattr("wakupush.server.engine.segments.EXPRESS_BYTES", 250)
    message = messages.register(client, divided.key, messages.registration(client, divided.key))
    first, last = in_segments(message, divided, 300, client)
    divided.handle(REGISTRATION, first)
    with monkeypatch.context() as here:
        here.setattr(message_segments, "parts", None)
        divided.handle(REGISTRATION, last)
    assert divided.outcomes(client) == []
    work_off_rest(divided)
    assert divided.outcomes(client) == ["success"]


def test_a_failing_message_stays_in_rest(divided, client, monkeypatch):
    """Its attempts are counted there, to the quarantine."""
    register(divided, client)
    monkeypatch.setattr("wakupush.server.engine.run.store", _raise)
    while length(divided):
        work_off_rest(divided)
        assert divided.context.redis.llen(REGISTRATION.name) == 0
    assert divided.rows("SELECT reason, attempts FROM quarantine") == [("RuntimeError", 3)]


def _raise(*_, **__):
    raise RuntimeError("of the message")


def test_a_full_queue_drops_by_chance(divided, monkeypatch):
    monkeypatch.setattr(rest, "MOST_BYTES", 80_000)
    dropped = metrics.MESSAGES_DROPPED.labels("rest_full")
    before = dropped._value.get()
    clients = [PrivateKey.generate() for _ in range(60)]
    for client in clients:
        register(divided, client)
    # Below half of its limit it drops none; it never has more than its limit, and one task.
    lost = dropped._value.get() - before
    assert 20 < length(divided) == 60 - lost < 60
    assert divided.context.redis.memory_usage(REST, samples=0) < 84_000
    # What was dropped is in no ledger: reconcile brings it.
    assert divided.rows("SELECT count(*) FROM ledger") == [(0,)]
    work_off_rest(divided)
    assert divided.rows("SELECT count(*) FROM ledger") == [(60 - lost,)]


def test_what_waits_there_keeps_its_age(divided, client):
    arrival_time = time.time() - 30
    content = messages.registration(client, divided.key)
    divided.handle(REGISTRATION, messages.register(client, divided.key, content), seen=arrival_time)
    waiting = backlog.look(divided.context.redis)[REST]
    assert (waiting.tasks, waiting.messages) == (1, 1)
