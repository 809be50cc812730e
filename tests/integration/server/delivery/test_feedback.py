"""What gorush's webhook tells, while a delivery is being posted, after it read as delivered, and from strangers."""

import http.client
import json
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from support.served import request
from wakupush.devnet.parts.processes import Process, answers_http, free_port, wait_until
from wakupush.model.failures import Failure
from wakupush.model.queues import DISPATCH
from wakupush.model.roles import Role
from wakupush.server.delivery import attempt, feedback, next_attempts
from wakupush.server.delivery.feedback import FeedbackResult
from wakupush.server.delivery.posting import Attempted
from wakupush.server.schedule.claim_due import claim_due
from wakupush.server.schedule.enqueue_feedback import enqueue_feedback

SECRET = "0123456789abcdef"
DEAD, BUSY = "Unregistered", "ServiceUnavailable"


def body(delivery_key, error=DEAD, attempt=1, **fields) -> bytes:
    notif_id = f"{delivery_key.hex()}-{attempt}" if isinstance(delivery_key, bytes) else delivery_key
    entry = {"notif_id": notif_id, "type": "failed-push", "platform": "ios", "token": "t", "message": "m"}
    return json.dumps(entry | {"error": error} | fields).encode()


def told_while_posting(server, client, content, error):
    """Ask for a push, tell the webhook of its failure before gorush answers, and return what the sender is told."""
    asking = server.threads.submit(server.handle, DISPATCH, request(client, server, content))
    found = []

    def posting():
        found[:] = server.rows("SELECT delivery_key FROM deliveries WHERE state = 'posting'")
        return bool(found)

    wait_until(posting, timeout=60, what="the delivery is being posted")
    assert feedback.take(server.context.pool, body(found[0][0], error)) is FeedbackResult.NOTED
    asking.result()
    [[told]] = server.outcomes(client)
    return told


def test_what_is_told_before_gorush_answers_is_the_outcome(server, client):
    content = server.register(client, device_token="slow-400")
    assert told_while_posting(server, client, content, DEAD) == "NOT_REGISTERED"
    assert [push.outcome for push in server.pushes()] == ["delivered"]  # by gorush's answer
    assert server.rows("SELECT state, failure, feedback FROM deliveries") == [("failed", "token_unregistered", None)]
    assert server.events("token_died") == [("token_unregistered", None)]
    assert server.events("delivered") == []


def test_what_failed_in_passing_is_tried_again_although_gorush_said_nothing(server, client):
    content = server.register(client, device_token="slow-400")
    assert told_while_posting(server, client, content, BUSY) == "success"
    query = "SELECT state, failure, attempt FROM deliveries"
    assert server.rows(query) == [("pending", "platform_unavailable", 1)]
    [(key,)] = server.rows("UPDATE deliveries SET next_attempt_at = now() RETURNING delivery_key")
    assert claim_due(server.context) == 1
    next_attempts.make(server.context, {key: 1}, "")
    assert server.rows(query) == [("delivered", None, 2)]


def test_what_gorush_answers_is_not_overruled(server, client):
    content = server.register(client, device_token="slow-400-dead")
    assert told_while_posting(server, client, content, BUSY) == "NOT_REGISTERED"
    assert server.rows("SELECT state, failure FROM deliveries") == [("failed", "token_unregistered")]


def test_what_an_earlier_attempt_was_told_does_not_count_for_the_next(server, client, monkeypatch):
    content = server.register(client)
    with monkeypatch.context() as patch:
        patch.setattr(attempt, "attempt", lambda *_, **__: Attempted())
        server.handle(DISPATCH, request(client, server, content))
    [(key,)] = server.rows("UPDATE deliveries SET lease_until = now() RETURNING delivery_key")
    assert feedback.take(server.context.pool, body(key)) is FeedbackResult.NOTED
    assert claim_due(server.context) == 1
    next_attempts.make(server.context, {key: 1}, "")
    assert server.rows("SELECT state, attempt FROM deliveries") == [("delivered", 2)]
    assert enqueue_feedback(server.context) == 0


def test_what_is_told_late_is_not_charged_to_the_next_attempt(server, client):
    content = server.register(client, device_token="unavailable")
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["success"]]
    server.register(client, version=2, installation_id=content.installation_id, device_token="slow-400")
    [(key,)] = server.rows("UPDATE deliveries SET next_attempt_at = now() RETURNING delivery_key")
    retrying = server.threads.submit(next_attempts.make, server.context, {key: 1}, "")
    posting = "SELECT count(*) FROM deliveries WHERE state = 'posting' AND attempt = 2"
    wait_until(lambda: server.rows(posting) == [(1,)], timeout=60, what="the second attempt is under way")
    assert feedback.take(server.context.pool, body(key)) is FeedbackResult.KNOWN
    retrying.result()
    assert feedback.take(server.context.pool, body(key)) is FeedbackResult.KNOWN
    assert enqueue_feedback(server.context) == 0
    assert server.rows("SELECT state, attempt FROM deliveries") == [("delivered", 2)]
    assert server.rows("SELECT token_died_at FROM registrations") == [(None,)]
    assert feedback.take(server.context.pool, body(key, attempt=2)) is FeedbackResult.NOTED


def test_what_is_told_of_a_delivered_one_makes_it_failed(server, client):
    content = server.register(client)
    server.handle(DISPATCH, request(client, server, content))
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries WHERE state = 'delivered'")
    assert enqueue_feedback(server.context) == 0
    for _ in range(2):
        assert feedback.take(server.context.pool, body(key)) is FeedbackResult.NOTED
    assert [enqueue_feedback(server.context) for _ in range(2)] == [1, 0]
    [task] = [json.loads(raw) for raw in server.context.redis.lrange(DISPATCH.name, 0, -1)]
    assert task["headers"]["task"] == "wakupush.feedback"
    for _ in range(2):  # as often as the task comes
        feedback.apply(server.context, [key])
    assert server.rows("SELECT state, failure, feedback FROM deliveries") == [("failed", "token_unregistered", None)]
    assert server.events("failed") == [("token_unregistered", None)]
    assert server.events("token_died") == [("token_unregistered", None)]
    assert feedback.take(server.context.pool, body(key)) is FeedbackResult.KNOWN
    server.outcomes(client)
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["NOT_REGISTERED"]]
    [(tried, bad)] = server.rows("SELECT sum(tried), sum(bad) FROM token_trials")
    assert (tried, bad) == (1, 1)


@pytest.mark.parametrize(
    ("error", "kind", "failure"),
    [
        ("Unregistered", "failed", "token_unregistered"),
        ('Post "https://api.push.apple.com/3/device/": context deadline exceeded', "unknown", "platform_timed_out"),
    ],
)
def test_what_the_webhook_leaves_unknown_is_told_as_unknown(server, client, error, kind, failure):
    content = server.register(client)
    server.handle(DISPATCH, request(client, server, content))
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries WHERE state = 'delivered'")
    assert feedback.take(server.context.pool, body(key, error)) is FeedbackResult.NOTED
    feedback.apply(server.context, [key])
    told = server.rows("SELECT kind, failure FROM delivery_history WHERE kind IN ('failed', 'unknown')")
    assert told == [(kind, failure)]


def test_a_new_life_of_a_delivery_forgets_what_was_told_of_the_old_one(server, client):
    content = server.register(client, device_token="bad")
    sent = request(client, server, content)
    server.handle(DISPATCH, sent)
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries")
    assert feedback.take(server.context.pool, body(key)) is FeedbackResult.KNOWN
    assert server.rows("SELECT feedback FROM deliveries") == [(None,)]


def test_only_the_version_that_was_tried_dies(server, client):
    content = server.register(client)
    server.handle(DISPATCH, request(client, server, content))
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries")
    server.rows("UPDATE registrations SET version = 2 RETURNING 1")
    feedback.take(server.context.pool, body(key))
    feedback.apply(server.context, [key])
    assert server.rows("SELECT state FROM deliveries") == [("failed",)]
    assert server.rows("SELECT token_died_at FROM registrations") == [(None,)]


@pytest.mark.parametrize(
    ("sent", "result"),
    [
        (body(b"k" * 32), FeedbackResult.UNKNOWN),
        (body(b"k" * 32, attempt=99_999), FeedbackResult.UNKNOWN),
        (body("somebody else's"), FeedbackResult.UNKNOWN),
        (body("AB" * 32 + "-1"), FeedbackResult.UNKNOWN),
        # Without the attempt, as earlier versions posted.
        (body("ab" * 32), FeedbackResult.UNKNOWN),
        (body(b"k" * 32, platform="huawei"), FeedbackResult.MALFORMED),
        (body(""), FeedbackResult.MALFORMED),
        (b"[" * 10_000, FeedbackResult.MALFORMED),
        (b"", FeedbackResult.MALFORMED),
    ],
)
def test_what_fits_nothing(server, sent, result):
    assert feedback.take(server.context.pool, sent) is result


# The process


class Receiver:
    def __init__(self, process, port):
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}"

    def post(self, content, secret=SECRET, **options):
        headers = {"X-Wakupush-Secret": secret} if secret else {}
        return httpx2.post(f"{self.url}/feedback", content=content, headers=headers, trust_env=False, **options)

    def counted(self, result):
        text = httpx2.get(f"{self.url}/metrics", trust_env=False).text
        lines = [line for line in text.splitlines() if f'wakupush_feedback_total{{result="{result}"}}' in line]
        return float(lines[0].rsplit(" ", 1)[1]) if lines else 0.0

    def log(self):
        return self.process.log.read_text()


@pytest.fixture
def start_receiver(tmp_path):
    started = []

    def start(dsn, ready="/readyz"):
        port = free_port()
        process = Process(
            "feedback",
            [sys.executable, "-m", "wakupush", "feedback"],
            log=tmp_path / "log",
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(Path(__file__).parents[4]),
                "WAKUPUSH_POSTGRES__DSN": make_conninfo(dsn, user=Role.FEEDBACK),
                "WAKUPUSH_GORUSH__FEEDBACK_SECRET": SECRET,
                "WAKUPUSH_FEEDBACK__HTTP_PORT": str(port),
            },
            ready=lambda: answers_http(f"http://127.0.0.1:{port}{ready}"),
        )
        process.start()
        started.append(process)
        return Receiver(process, port)

    yield start
    for process in started:
        process.stop()


def test_the_process_answers_as_gorush_needs_it(server, client, dsn, start_receiver):
    receiver = start_receiver(dsn)
    server.handle(DISPATCH, request(client, server, server.register(client)))
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries")
    secret_token = "device-token-that-nobody-may-see"
    assert receiver.post(body(key, f"secret {secret_token}", token=secret_token)).status_code == 200
    assert server.rows("SELECT feedback FROM deliveries") == [("platform_unclear",)]
    assert receiver.post(body("cd" * 32, token=secret_token)).status_code == 200
    assert receiver.post(b'{"token": "' + secret_token.encode()).status_code == 400
    assert receiver.post(body(key, token=secret_token * 10_000)).status_code == 413
    for wrong in (None, "", SECRET[:-1], SECRET + "0", "\u00e9" * 16):
        assert receiver.post(body(key), secret=wrong and wrong.encode()).status_code == 403
    assert httpx2.get(f"{receiver.url}/feedback", trust_env=False).status_code == 405
    assert httpx2.get(f"{receiver.url}/healthz", trust_env=False).status_code == 200
    assert httpx2.get(f"{receiver.url}/readyz", trust_env=False).json() == {"Postgres": True}
    counts = {"noted": 1, "unknown": 1, "malformed": 1, "too_large": 1, "forbidden": 5}
    assert {result: receiver.counted(result) for result in counts} == counts
    receiver.process.stop()
    assert receiver.process.wait() == 0
    assert '"event": "stopped"' in receiver.log()
    assert secret_token not in receiver.log()
    assert SECRET not in receiver.log()


def test_postgres_is_down(start_receiver):
    receiver = start_receiver(f"postgresql://127.0.0.1:{free_port()}/x", ready="/healthz")
    begun = time.monotonic()
    with ThreadPoolExecutor(10) as threads:
        statuses = list(threads.map(lambda _: receiver.post(body(bytes(32))).status_code, range(10)))
    assert statuses == [503] * 10
    assert time.monotonic() - begun < 10  # gorush's patience
    assert httpx2.get(f"{receiver.url}/readyz", trust_env=False).status_code == 503
    assert httpx2.get(f"{receiver.url}/healthz", trust_env=False).status_code == 200
    assert receiver.counted("unavailable") == 10


def test_slow_clients_do_not_hold_up_others(dsn, start_receiver):
    receiver = start_receiver(dsn)
    head = f"POST /feedback HTTP/1.1\r\nHost: x\r\nX-Wakupush-Secret: {SECRET}\r\nContent-Length: 100\r\n\r\n{{"
    slow = [socket.create_connection(("127.0.0.1", receiver.port)) for _ in range(200)]
    try:
        for each in slow:
            each.sendall(head.encode())
        begun = time.monotonic()
        assert receiver.post(body(bytes(32))).status_code == 200
        assert time.monotonic() - begun < 4  # in 5 s the slow ones are given up
        slow[0].settimeout(10)
        assert b" 408 " in slow[0].recv(1000)
        wait_until(lambda: receiver.counted("too_slow") == 200, timeout=60, what="all are given up")
    finally:
        for each in slow:
            each.close()


#: Bodies that look more or less like a feedback.
entries = st.fixed_dictionaries(
    {},
    optional={
        "notif_id": st.one_of(
            st.text(),
            st.none(),
            st.integers(),
            st.binary(min_size=32, max_size=32).map(lambda key: f"{key.hex()}-1"),
        ),
        "platform": st.sampled_from(["ios", "android", "huawei", "", 1, None]),
        "error": st.one_of(st.text(), st.none(), st.sampled_from(["Unregistered", 'Post "https://'])),
        "token": st.text(),
    },
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=5,
)
bodies = st.one_of(
    st.binary(max_size=300),
    st.one_of(entries, json_values).map(lambda value: json.dumps(value).encode()),
    entries.map(lambda value: json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")),
)
header_bytes = st.binary(max_size=60).filter(lambda value: not set(value) & set(b"\r\n\0"))


@pytest.fixture
def receiver(dsn, start_receiver):
    return start_receiver(dsn)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=bodies, secret=st.one_of(st.just(SECRET.encode()), header_bytes), name=header_bytes, value=header_bytes)
def test_whatever_strangers_send_is_answered_with_a_name(receiver, content, secret, name, value):
    lines = [
        b"POST /feedback HTTP/1.1",
        b"Host: x",
        b"Connection: close",
        b"X-Wakupush-Secret: " + secret,
        b"X" + name.replace(b":", b"").strip() + b": " + value,
        b"Content-Length: %d" % len(content),
    ]
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=10) as connection:
        connection.sendall(b"\r\n".join(lines) + b"\r\n\r\n" + content)
        with http.client.HTTPResponse(connection) as answer:
            answer.begin()
            assert answer.status in {200, 400, 403}
    assert '"level": "error"' not in receiver.log()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(min_size=1, max_size=500))
def test_bytes_that_are_no_http_end_no_process(receiver, content):
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=10) as connection:
        connection.sendall(content + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(10_000):
            pass
    assert receiver.post(body(bytes(32))).status_code == 200
    assert '"level": "error"' not in receiver.log()


def test_a_label_of_a_newer_version_is_an_unclear_failure(server, client):
    server.handle(DISPATCH, request(client, server, server.register(client)))
    [(key,)] = server.rows("SELECT delivery_key FROM deliveries")
    server.rows("UPDATE deliveries SET feedback = 'of a newer version' RETURNING 1")
    feedback.apply(server.context, [key])
    assert server.rows("SELECT state FROM deliveries") == [("failed",)]
    assert server.events("failed") == [(Failure.PLATFORM_UNCLEAR.label, None)]


@pytest.fixture
def real_gorush(tmp_path):
    """Start a real gorush whose Firebase is reached by nobody, and which calls a receiver."""
    binary = os.environ.get("WAKUPUSH_TEST_GORUSH")
    if not binary:
        pytest.skip("set WAKUPUSH_TEST_GORUSH to a gorush 1.22 binary")
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    account = {
        "type": "service_account",
        "project_id": "p",
        "private_key": rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(*pem).decode(),
        "client_email": "a@p.iam.gserviceaccount.com",
        "token_uri": "http://127.0.0.1:9/token",
    }
    started = []

    def start(receiver):
        port = free_port()
        core = {
            "address": "127.0.0.1",
            "port": str(port),
            "sync": True,
            "feedback_hook_url": f"{receiver.url}/feedback",
            "feedback_header": [f"X-Wakupush-Secret: {SECRET}"],
        }
        android = {"enabled": True, "credential": json.dumps(account), "max_retry": 0}
        file = tmp_path / "gorush.yml"
        file.write_text(json.dumps({"core": core, "android": android, "log": {"hide_token": True}}))  # JSON is YAML
        ready = partial(answers_http, f"http://127.0.0.1:{port}/healthz")
        process = Process("gorush", [binary, "-c", str(file)], log=tmp_path / "gorush.log", cwd=tmp_path, ready=ready)
        process.start()
        started.append(process)
        return f"http://127.0.0.1:{port}"

    yield start
    for process in started:
        process.stop()


@pytest.mark.real
def test_what_a_real_gorush_tells_its_webhook_alone_is_the_outcome(
    open_server, client, dsn, start_receiver, real_gorush
):
    receiver = start_receiver(dsn)
    server = open_server(gorush={"url": real_gorush(receiver), "timeout": 20})
    content = server.register(client, token_type=2, apn_topic="")
    # Firebase's library refuses the notification as a whole: gorush answers with counts 1 and an empty log.
    server.reroute("")
    server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["INTERNAL_ERROR"]]
    assert server.rows("SELECT state, failure FROM deliveries") == [("failed", "token_rejected")]
    assert receiver.counted("noted") == 1
    assert receiver.counted("forbidden") == 0
