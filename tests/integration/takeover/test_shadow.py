"""In shadow: what is decided is stored, and another server answers and pushes; and the switch."""

import time
from functools import partial

import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from support.served import SHARD, in_segments, request, rewrapped, work_off
from wakupush.cli import app
from wakupush.devnet.demo import messages
from wakupush.model.answers import SealedAnswer
from wakupush.model.queues import DISPATCH, QUERY, QUEUES, REGISTRATION
from wakupush.model.roles import Role
from wakupush.pb.push_notification_pb2 import PushNotificationRegistrationResponse
from wakupush.postgres import answers, takeover
from wakupush.postgres import shadow as rows_of_shadow
from wakupush.protocol.application import Type
from wakupush.protocol.envelopes import to_key
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import metrics
from wakupush.server import shadow
from wakupush.server.delivery import next_attempts
from wakupush.server.schedule.claim_due import claim_due
from wakupush.server.schedule.enqueue_shadowed import enqueue_shadowed
from wakupush.server.schedule.prune import prune
from wakupush.server.schedule.publish_overdue import publish_overdue
from wakupush.server.schedule.trim_shadowed import trim_shadowed
from wakupush.takeover import answering, switching
from wakupush.takeover.errors import TakeoverError
from wakupush.takeover.switching import MARGIN_SECONDS
from wakupush.waku.node import WakuNode

#: Tables that nothing is left in by what another server answers and pushes.
UNTOUCHED = ("answers", "deliveries", "admitted_requests")


@pytest.fixture
def shadowing(open_server):
    return open_server(shadow=True)


def count(server, *tables):
    return {table: server.rows(f"SELECT count(*) FROM {table}")[0][0] for table in tables}


def register(server, client, **fields):
    """Register a client in shadow; nobody answers."""
    content = messages.registration(client, server.key, **fields)
    server.handle(REGISTRATION, sent := messages.register(client, server.key, content))
    server.derive()
    return content, sent


def end(server, stopped_at, now=None):
    with server.context.pool.connection() as connection:
        connection.set_autocommit(True)
        switched = switching.end(connection, stopped_at, now=now or time.time(), keep=600.0)
        connection.set_autocommit(False)
    return switched


def switch(server, stopped_at):
    """End the shadow, and do what the schedule and the workers do then."""
    switched = end(server, stopped_at)
    while enqueue_shadowed(server.context):
        for queue in QUEUES.values():
            work_off(server, queue)
    return switched


def observed(histogram, queue):
    [metric] = histogram.collect()
    return {
        sample.labels.get("le"): sample.value
        for sample in metric.samples
        if sample.labels["queue"] == queue and sample.name.endswith("_bucket")
    }


def test_what_is_decided_is_stored_and_nobody_is_answered_or_pushed(shadowing, client):
    before = observed(metrics.SHADOW_ANSWER_BYTES, "registration")
    content, _ = register(shadowing, client)
    shadowing.handle(DISPATCH, request(client, shadowing, content))
    shadowing.handle(QUERY, messages.query(client, client.public_key.key_hash))
    assert [device.device_token for device in shadowing.devices()] == [content.device_token]
    assert shadowing.rows("SELECT count(*) FROM query_topics") == [(2,)]
    assert count(shadowing, *UNTOUCHED) == dict.fromkeys(UNTOUCHED, 0)
    assert shadowing.answers(client) == []
    assert shadowing.pushes() == []
    kept = shadowing.rows("SELECT queue, request_id IS NOT NULL FROM shadowed_messages ORDER BY queue")
    assert kept == [("dispatch", True), ("query", False), ("registration", False)]
    assert {kind for (kind,) in shadowing.rows("SELECT kind FROM delivery_events")} == {"received", "opened"}
    after = observed(metrics.SHADOW_ANSWER_BYTES, "registration")
    assert after["+Inf"] == before.get("+Inf", 0) + 1


def test_unregistering_counts_in_shadow(shadowing, client):
    content, _ = register(shadowing, client)
    gone = messages.registration(
        client, shadowing.key, unregister=True, version=2, installation_id=content.installation_id
    )
    shadowing.handle(REGISTRATION, messages.register(client, shadowing.key, gone))
    assert shadowing.rows("SELECT registered, version FROM registrations") == [(False, 2)]


def test_the_switch_answers_and_pushes_what_came_since_and_nothing_of_before(shadowing):
    now = time.time()
    stopped_at = now - 200
    early, late = stopped_at - MARGIN_SECONDS - 5, stopped_at - MARGIN_SECONDS + 5
    old, new = PrivateKey.generate(), PrivateKey.generate()
    contents = {}
    for client, seen in ((old, early), (new, late)):
        contents[client] = messages.registration(client, shadowing.key)
        shadowing.handle(REGISTRATION, messages.register(client, shadowing.key, contents[client]), seen=seen)
    shadowing.derive()
    asked = {client: request(client, shadowing, contents[client]) for client in (old, new)}
    shadowing.handle(DISPATCH, asked[old], seen=early)
    shadowing.handle(DISPATCH, asked[new], rewrapped(asked[new], shadowing), seen=late)
    shadowing.handle(QUERY, messages.query(old, old.public_key.key_hash), seen=early)
    shadowing.handle(QUERY, messages.query(new, new.public_key.key_hash), seen=late)
    assert shadowing.answers(old, new) == []

    switched = switch(shadowing, stopped_at)
    assert (switched.answered, switched.left, switched.lost_seconds) == (4, 3, 0)
    assert [push.notification["tokens"] for push in shadowing.pushes()] == [[contents[new].device_token]]
    found = shadowing.answers(old, new)
    assert {reply.recipient for reply in found} == {new.public_key}
    assert len(found) == 4  # two envelopes of one request
    assert count(shadowing, "shadowed_messages") == {"shadowed_messages": 0}
    assert {version for (version,) in shadowing.rows("SELECT version FROM registrations")} == {1}

    # A request of before is over, in whatever envelope; what is new is handled as ever.
    shadowing.handle(DISPATCH, rewrapped(asked[old], shadowing))
    assert (shadowing.answers(old), shadowing.pushes()) == ([], [])
    shadowing.handle(DISPATCH, rewrapped(asked[new], shadowing), request(old, shadowing, contents[old]))
    assert shadowing.outcomes(old, new) == [["success"], ["success"]]
    assert [push.notification["tokens"] for push in shadowing.pushes()] == [[contents[old].device_token]]


def test_what_the_reference_handled_by_its_ids_is_not_pushed_within_the_margin(shadowing, client):
    content, _ = register(shadowing, client)
    asked = [request(client, shadowing, content) for _ in range(2)]
    shadowing.handle(DISPATCH, *asked)
    [(theirs,), _] = shadowing.rows("SELECT request_id FROM shadowed_messages WHERE request_id IS NOT NULL")
    with shadowing.context.pool.connection() as connection:
        assert takeover.known_requests(connection, [theirs]) == 1
        takeover.remember(connection, [theirs])
    switch(shadowing, time.time())
    assert len(shadowing.pushes()) == 1
    assert sorted(map(str, shadowing.outcomes(client))) == ["['success']", "success"]


def test_a_registration_in_segments_is_answered_at_the_switch(shadowing, client):
    sent = messages.register(client, shadowing.key, messages.registration(client, shadowing.key))
    parts = in_segments(sent, shadowing, 100, client)
    for part in parts:
        shadowing.handle(REGISTRATION, part)
    assert len(shadowing.devices()) == 1
    assert count(shadowing, "shadowed_messages") == {"shadowed_messages": 1}
    switch(shadowing, time.time())
    assert shadowing.outcomes(client) == ["success"]
    assert count(shadowing, "message_segments") == {"message_segments": 0}


def test_what_was_seen_before_and_is_handled_after_the_switch_is_stored_alone(shadowing, client):
    content, _ = register(shadowing, client)
    stopped_at = time.time()
    end(shadowing, stopped_at)
    seen = stopped_at - MARGIN_SECONDS - 1
    newer = messages.registration(client, shadowing.key, version=2, installation_id=content.installation_id)
    asked = request(client, shadowing, content)
    shadowing.handle(DISPATCH, asked, seen=seen)
    shadowing.handle(REGISTRATION, messages.register(client, shadowing.key, newer), seen=seen)
    assert shadowing.rows("SELECT version FROM registrations") == [(2,)]
    assert count(shadowing, "answers", "deliveries") == {"answers": 0, "deliveries": 0}
    trim_shadowed(shadowing.context)
    assert enqueue_shadowed(shadowing.context) == 1  # the first registration
    shadowing.handle(DISPATCH, rewrapped(asked, shadowing))
    assert (shadowing.answers(client), shadowing.pushes()) == ([], [])


def test_without_the_setting_a_process_stays_in_shadow_until_it_is_ended(open_server, client):
    open_server(shadow=True)
    server = open_server()
    content, _ = register(server, client)
    server.handle(DISPATCH, request(client, server, content))
    assert (server.answers(client), server.pushes()) == ([], [])
    switch(server, time.time())
    assert len(server.pushes()) == 1
    assert len(server.answers(client)) == 2


def test_a_server_that_is_alone_looks_only_now_and_then(monkeypatch):
    asked = []
    monkeypatch.setattr(shadow.shadow, "state", lambda _: asked.append(1))
    known = shadow.Shadow()
    for _ in range(3):
        assert known.answers_since(None) == float("-inf")
    assert len(asked) == 1
    monkeypatch.setattr(shadow, "LOOK_SECONDS", -1.0)
    known = shadow.Shadow()
    for _ in range(3):
        assert not known.is_on(None)
    assert len(asked) == 4


def test_rows_of_before_are_not_touched_in_shadow(open_server, client, monkeypatch):
    monkeypatch.setattr(shadow, "LOOK_SECONDS", -1.0)
    server = open_server()
    content = server.register(client)
    server.reroute("unreachable")
    server.handle(DISPATCH, request(client, server, content))
    answer = SealedAnswer(pubsub_topic=SHARD, content_topic="/waku/1/0x1/rfc26", payload=b"1", trace_id="t")
    with server.context.pool.connection() as connection:
        due = "state = 'pending', lease = NULL, lease_until = NULL, finished_at = NULL, next_attempt_at = now()"
        connection.execute(f"UPDATE deliveries SET {due}")
        answers.add(connection, [answer], 0.0)
        [(key, attempt)] = connection.execute("SELECT delivery_key, attempt FROM deliveries").fetchall()
        rows_of_shadow.begin(connection)
    server.pushes(), server.observer.messages()
    assert (claim_due(server.context), publish_overdue(server.context)) == (0, 0)
    assert next_attempts.make(server.context, {key: attempt}, "task") is None
    assert (server.pushes(), server.observer.messages()) == ([], [])
    end(server, time.time())
    assert (claim_due(server.context), publish_overdue(server.context)) == (1, 1)


def test_what_is_kept_is_bounded_and_chance_decides_what_goes(open_server, client):
    server = open_server(shadow=True, limits={"shadowed_messages": 5})
    content, _ = register(server, client)
    asked = [request(client, server, content) for _ in range(9)]
    server.handle(DISPATCH, *asked)
    dropped = metrics.SHADOWED_DROPPED._value.get()
    assert trim_shadowed(server.context) == 5
    assert count(server, "shadowed_messages") == {"shadowed_messages": 5}
    assert (metrics.SHADOWED_DROPPED._value.get() - dropped, metrics.SHADOWED_MESSAGES._value.get()) == (5, 5)
    assert trim_shadowed(server.context) == 0
    over = count(server, "admitted_requests")["admitted_requests"]
    assert over in (4, 5)
    switch(server, time.time())
    server.handle(DISPATCH, *(rewrapped(each, server) for each in asked))
    # None twice: what was dropped is over.
    assert len(server.pushes()) == 9 - over


def test_bytes_are_bounded(open_server, client):
    server = open_server(shadow=True, limits={"shadowed_bytes": 1})
    register(server, client)
    assert trim_shadowed(server.context) == 1


def test_after_ten_minutes_a_request_is_over(shadowing, client):
    content, _ = register(shadowing, client)
    asked = request(client, shadowing, content)
    shadowing.handle(DISPATCH, asked, seen=time.time() - 500)
    assert trim_shadowed(shadowing.context) == 0
    shadowing.rows("UPDATE shadowed_messages SET seen_at = seen_at - interval '101 s' RETURNING 1")
    assert trim_shadowed(shadowing.context) == 1
    assert shadowing.rows("SELECT expired FROM admitted_requests") == [(True,)]
    shadowing.handle(DISPATCH, rewrapped(asked, shadowing))
    assert ("request_over", None) in shadowing.events("refused")
    assert count(shadowing, "shadowed_messages") == {"shadowed_messages": 1}  # the registration


def test_a_request_of_which_nothing_is_taken_on_leaves_no_id(shadowing, client):
    content = messages.registration(client, shadowing.key)
    shadowing.handle(DISPATCH, request(client, shadowing, content), seen=time.time() - 100)
    assert shadowing.rows("SELECT request_id FROM shadowed_messages") == [(None,)]


def test_what_the_switch_says_when_it_comes_late(shadowing, client):
    register(shadowing, client)
    shadowing.rows("UPDATE shadow SET begun_at = now() - interval '1 day' RETURNING 1")
    now = time.time()
    assert end(shadowing, now - 700, now=now).lost_seconds == pytest.approx(160)


def test_the_end_is_refused_where_there_is_nothing_to_end(open_server):
    server = open_server()
    refused = partial(pytest.raises, TakeoverError)
    with refused(match="not in shadow"):
        end(server, time.time())
    server = open_server(shadow=True)
    with refused(match="is to come"):
        end(server, time.time() + 60)
    end(server, time.time())
    with refused(match="has ended"):
        end(server, time.time())


def test_it_is_forgotten_when_nothing_of_before_can_come_any_more(shadowing):
    end(shadowing, time.time())
    prune(shadowing.context)
    assert count(shadowing, "shadow") == {"shadow": 1}
    shadowing.rows("UPDATE shadow SET ended_at = now() - interval '3 days' RETURNING 1")
    prune(shadowing.context)
    assert count(shadowing, "shadow") == {"shadow": 0}


def test_the_command(shadowing, client, dsn, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", make_conninfo(dsn, user=Role.REBUILD))
    register(shadowing, client)

    def run(*words):
        return CliRunner().invoke(app, ["shadow", "end", *words])

    assert run("--reference-stopped-at", "soon").exit_code == 2
    result = run("--reference-stopped-at", "5s")
    assert result.exit_code == 0, result.output
    assert "1 messages of before the switch are handled now, 0 are left" in result.stdout
    assert "take WAKUPUSH_SHADOW away" in result.stdout
    again = run("--reference-stopped-at", "5s")
    assert (again.exit_code, "has ended" in again.output) == (2, True)
    assert enqueue_shadowed(shadowing.context) == 1


def test_how_often_the_reference_answers_shows_in_a_store(shadowing, node, dsn, monkeypatch):
    """It answers two of three registrations; on the third's topic a message of that size had come before."""
    # A node archives what is fresh.
    monkeypatch.setattr(answering, "WINDOW_SECONDS", 4.0)
    monkeypatch.setattr(answering, "CONTROL_SECONDS", 6.0)
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", make_conninfo(dsn, user=Role.REBUILD))
    monkeypatch.setenv("WAKUPUSH_WAKU__URL", node)
    now = time.time()
    clients = [PrivateKey.generate() for _ in range(3)]
    with WakuNode(node) as waku:
        for number, client in enumerate(clients):
            seen = now - 8 - number / 10
            content = messages.registration(client, shadowing.key)
            shadowing.handle(REGISTRATION, messages.register(client, shadowing.key, content), seen=seen)
            answered = seen + 1 if number < 2 else seen - 5
            response = PushNotificationRegistrationResponse(success=True, request_id=bytes(64)).SerializeToString()
            kind = Type.PUSH_NOTIFICATION_REGISTRATION_RESPONSE
            key = shadowing.context.identity.private_key
            [answer] = to_key(key, client.public_key, kind, response, timestamp=int(answered * 1e9))
            waku.publish(SHARD, answer)
            other = to_key(key, client.public_key, kind, bytes(1000), timestamp=int((seen + 1) * 1e9))
            waku.publish(SHARD, *other)
    result = CliRunner().invoke(app, ["shadow", "compare"])
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[1].split() == ["registration", "369", "3", "2", "1"]


def test_without_questions_nothing_can_be_said_of_answers(server, node, dsn, monkeypatch):  # noqa: ARG001 - the schema
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", make_conninfo(dsn, user=Role.REBUILD))
    monkeypatch.setenv("WAKUPUSH_WAKU__URL", node)
    result = CliRunner().invoke(app, ["shadow", "compare"])
    assert (result.exit_code, "no question" in result.output) == (2, True)
