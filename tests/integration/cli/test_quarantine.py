"""``wakupush quarantine``: what an operator finds, and what may be done about it."""

import json
import time
from functools import partial

import psycopg
import pytest

from support import commands
from support.served import SHARD, read_task, request, work_off
from wakupush.devnet import messages
from wakupush.devnet.processes import free_port
from wakupush.model.entries import Entry
from wakupush.model.quarantine import QuarantineSelection
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.postgres import ledger, quarantine
from wakupush.protocol import registration as rules
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.server.engine import isolation

NOTHING, USAGE = 1, 2
ROWS = "SELECT reason, attempts, retried_at IS NOT NULL FROM quarantine"


@pytest.fixture
def run(dsn, redis_server, monkeypatch):
    """Run the command against the test's database and return its result."""
    monkeypatch.setenv("WAKUPUSH_POSTGRES__DSN", dsn)
    monkeypatch.setenv("WAKUPUSH_REDIS__URL", redis_server.url)
    monkeypatch.setenv("COLUMNS", "80")

    return partial(commands.run, "quarantine")


@pytest.fixture
def list_messages(run):
    return lambda *arguments: [json.loads(line) for line in run("list", "--json", *arguments).stdout.splitlines()]


@pytest.fixture
def fault(monkeypatch):
    """A fault of ours, which every registration meets until it is put right."""

    def check(*_, **__):
        raise RuntimeError("secret-token")

    with monkeypatch.context() as patch:
        patch.setattr(rules, "check", check)
        yield patch.undo


def fail(server, message, queue=REGISTRATION):
    """Have a message fail until it is in quarantine."""
    for _ in range(isolation.MOST_ATTEMPTS):
        server.handle(queue, message, alone=True)
    server.context.redis.delete(queue.name)


@pytest.fixture
def message_and_mend(server, client, fault):
    """A registration in quarantine, and what puts right why."""
    content = messages.registration(client, server.key, device_token="secret-token")
    message = messages.register(client, server.key, content)
    fail(server, message)
    assert server.rows(ROWS) == [("RuntimeError", 3, False)]
    return message, fault


def put(server, count, *, queue="dispatch", reason="process died", age=0):
    """Put messages into quarantine, each some microseconds older than the one before."""
    server.rows(
        "INSERT INTO quarantine (message_hash, queue, pubsub_topic, content_topic, payload, message_timestamp, meta,"
        " seen_at, reason, attempts, quarantined_at)"
        " SELECT sha256(convert_to(concat(%s::text, %s::text, %s::text, n), 'UTF8')), %s, 'shard', '/a/1/b/c', 'x', 1,"
        " '', now(), %s, 3, now() - %s * interval '1 second' - n * interval '1 microsecond'"
        " FROM generate_series(1, %s) AS n RETURNING 1",
        *(queue, reason, age, queue, reason, age, count),
    )


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ((), 6),
        (("--queue", "query"), 2),
        (("--reason", "process died"), 4),
        (("--older-than", "90m"), 2),
        (("--newer-than", "90m"), 4),
        (("--queue", "dispatch", "--newer-than", "90m"), 3),
        (("--limit", "2"), 2),
    ],
)
def test_filters(server, list_messages, options, count):
    put(server, 3)
    put(server, 2, queue="query", reason="QueryCanceled", age=7200)
    put(server, 1, queue="registration")
    rows = list_messages(*options)
    assert len(rows) == count
    assert rows == sorted(rows, key=lambda message: message["quarantined_at"], reverse=True)


def test_a_queue_that_does_not_exist_is_refused(run):
    assert "dispatch" in run("list", "--queue", "other", expect=USAGE).stderr


def test_show_tells_all_that_is_no_secret(server, client, message_and_mend, run, monkeypatch):
    message, _ = message_and_mend
    monkeypatch.setenv("WAKUPUSH_IDENTITY_KEY", server.context.identity.private_key.secret.hex())
    hash_ = message_hash(SHARD, message)
    result = run("show", hash_.hex()[:9].upper(), "--json")
    output = json.loads(result.stdout)
    assert output["message_hash"] == hash_.hex()
    assert (output["queue"], output["reason"], output["attempts"]) == ("registration", "RuntimeError", 3)
    assert (output["bytes"], output["owner"], output["retried_at"]) == (len(message.payload), "known", None)
    assert [(event["kind"], event["failure"]) for event in output["events"]] == [("refused", "quarantined")]
    outputs = result.output + run("show", hash_.hex()).output + run("list").output + run("list", "--json").output
    key_hash = client.public_key.key_hash.hex()
    for secret in ("secret-token", message.payload.hex()[:40], key_hash, message.content_topic):
        assert secret not in outputs


def test_retried_message_stays_until_handled(server, client, message_and_mend, run, list_messages):
    message, put_right = message_and_mend
    key = message_hash(SHARD, message).hex()
    assert run("retry", key[:8]).stdout == "1 quarantined messages will be handled again\n"
    assert server.rows(ROWS) == [("RuntimeError", 3, True)]
    assert server.rows("SELECT count(*) FROM ledger") == [(0,)], "so reconciliation finds it, too"
    assert list_messages()[0]["retried_at"]
    put_right()
    work_off(server, REGISTRATION)
    assert server.outcomes(client) == ["success"]
    assert server.rows(ROWS) == []
    assert server.rows("SELECT count(*) FROM ledger") == [(1,)]


def test_failed_retry_returns_to_quarantine(server, client, message_and_mend, run):
    message, put_right = message_and_mend
    for _ in range(2):
        run("retry", "--all", "--yes")
    work_off(server, REGISTRATION)
    assert server.rows(ROWS) == [("RuntimeError", 3, False)], "what came a second time changed nothing"
    put_right()
    run("retry", message_hash(SHARD, message).hex())
    work_off(server, REGISTRATION)
    assert server.outcomes(client) == ["success"]
    assert server.rows(ROWS) == []


def test_lost_queue_allows_another_retry(server, client, message_and_mend, run):
    _, put_right = message_and_mend
    put_right()
    run("retry", "--all", "--yes")
    server.context.redis.flushall()
    run("retry", "--all", "--yes")
    work_off(server, REGISTRATION)
    assert server.outcomes(client) == ["success"]


@pytest.mark.usefixtures("message_and_mend")
def test_nothing_happens_where_redis_does_not_answer(server, run, monkeypatch):
    monkeypatch.setenv("WAKUPUSH_REDIS__URL", f"redis://127.0.0.1:{free_port()}/0")
    monkeypatch.setenv("WAKUPUSH_REDIS__TIMEOUT", "0.3")
    assert "WAKUPUSH_REDIS__URL does not answer" in run("retry", "--all", "--yes", expect=USAGE).stderr
    assert server.rows(ROWS) == [("RuntimeError", 3, False)]
    assert server.rows("SELECT count(*) FROM ledger") == [(1,)]


def test_a_worker_waits_for_the_commit_of_a_retry(server, client, message_and_mend, dsn):
    message, put_right = message_and_mend
    put_right()
    with psycopg.connect(dsn) as connection:
        [(_, _, entry)] = quarantine.retry(connection, QuarantineSelection(), None)
        assert entry == Entry(SHARD, message_hash(SHARD, message), entry.seen, message)
        handled = server.threads.submit(server.handle, REGISTRATION, message, alone=True)
        time.sleep(0.3)
        assert not handled.done()
        connection.rollback()
    handled.result()
    assert server.outcomes(client) == []
    assert server.rows(ROWS) == [("RuntimeError", 3, False)]


def test_all_asks_first_and_works_in_chunks(server, run):
    put(server, 2 * quarantine.CHUNK_ROWS + 1)
    assert "retry 201 quarantined messages?" in run("retry", "--all", input="n\n", expect=NOTHING).stderr
    assert server.context.redis.llen(DISPATCH.name) == 0
    assert run("retry", "--all", "--yes").stdout == "201 quarantined messages will be handled again\n"
    assert server.context.redis.llen(DISPATCH.name) == 201
    [entry], _ = read_task(server.context.redis.lindex(DISPATCH.name, 0))
    assert entry.deferred, "it is in the ledger until the commit, and yet no copy"
    put(server, 1, queue="query")
    assert run("drop", "--all", "--yes", "--queue", "query").stdout == "1 quarantined messages deleted\n"
    assert server.rows("SELECT count(*) FROM quarantine") == [(201,)]
    assert run("drop", "--all", "--yes").stdout == "201 quarantined messages deleted\n"
    assert server.context.redis.llen(QUERY.name) == 0


def test_old_push_request_is_recorded_as_expired(server, client, run):
    content = server.register(client)
    message = request(PrivateKey.generate(), server, content)
    with server.context.pool.connection() as connection:
        entry = Entry(SHARD, message_hash(SHARD, message), time.time() - 3600, message)
        ledger.quarantine(connection, DISPATCH, entry, reason="KeyError", attempts=3, owner=None)
    run("retry", "--all", "--yes")
    work_off(server, DISPATCH)
    assert server.rows("SELECT failure FROM delivery_history WHERE kind = 'expired'") == [("request_expired",)]
    assert server.rows(ROWS) == []
