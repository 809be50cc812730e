"""``wakupush feedback``: what it answers gorush, strangers and slow clients, and what a real gorush tells it."""

import http.client
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo

from support.feedback import body
from support.real_gorush import BINARY, account, running
from support.served import request
from wakupush.devnet.processes import Process, answers_http, free_port, wait_until
from wakupush.model.queues import DISPATCH
from wakupush.model.roles import Role

SECRET = "0123456789abcdef"


class Receiver:
    def __init__(self, process, port):
        self.process, self.port = process, port
        self.url = f"http://127.0.0.1:{port}"

    def post(self, content, secret=SECRET, **options):
        headers = {"X-Wakupush-Secret": secret} if secret else {}
        return httpx2.post(f"{self.url}/feedback", content=content, headers=headers, trust_env=False, **options)

    def count(self, result):
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
    assert {result: receiver.count(result) for result in counts} == counts
    receiver.process.stop()
    assert receiver.process.wait() == 0
    assert '"event": "stopped"' in receiver.log()
    assert secret_token not in receiver.log()
    assert SECRET not in receiver.log()


def test_postgres_is_down(start_receiver):
    receiver = start_receiver(f"postgresql://127.0.0.1:{free_port()}/x", ready="/healthz")
    start_time = time.monotonic()
    with ThreadPoolExecutor(10) as threads:
        statuses = list(threads.map(lambda _: receiver.post(body(bytes(32))).status_code, range(10)))
    assert statuses == [503] * 10
    assert time.monotonic() - start_time < 10  # gorush's patience
    assert httpx2.get(f"{receiver.url}/readyz", trust_env=False).status_code == 503
    assert httpx2.get(f"{receiver.url}/healthz", trust_env=False).status_code == 200
    assert receiver.count("unavailable") == 10


def test_slow_clients_do_not_hold_up_others(dsn, start_receiver):
    receiver = start_receiver(dsn)
    head = f"POST /feedback HTTP/1.1\r\nHost: x\r\nX-Wakupush-Secret: {SECRET}\r\nContent-Length: 100\r\n\r\n{{"
    slow = [socket.create_connection(("127.0.0.1", receiver.port)) for _ in range(200)]
    try:
        for each in slow:
            each.sendall(head.encode())
        start_time = time.monotonic()
        assert receiver.post(body(bytes(32))).status_code == 200
        assert time.monotonic() - start_time < 4  # in 5 s the slow ones are given up
        slow[0].settimeout(10)
        assert b" 408 " in slow[0].recv(1000)
        wait_until(lambda: receiver.count("too_slow") == 200, timeout=60, what="all are given up")
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


@pytest.mark.real
@pytest.mark.skipif(not BINARY, reason="WAKUPUSH_TEST_GORUSH does not name a gorush binary")
def test_feedback_of_a_real_gorush_is_the_outcome(open_server, client, dsn, start_receiver, tmp_path):
    receiver = start_receiver(dsn)
    core = {"feedback_hook_url": f"{receiver.url}/feedback", "feedback_header": [f"X-Wakupush-Secret: {SECRET}"]}
    android = {"enabled": True, "credential": account("http://127.0.0.1:9/token")}
    with running(tmp_path, core=core, android=android) as gorush:
        server = open_server(gorush={"url": gorush.url, "timeout": 20})
        content = server.register(client, token_type=2, apn_topic="")
        # Firebase's library refuses the notification as a whole: gorush answers with counts 1 and an empty log.
        server.reroute("")
        server.handle(DISPATCH, request(client, server, content))
    assert server.outcomes(client) == [["INTERNAL_ERROR"]]
    assert server.rows("SELECT state, failure FROM deliveries") == [("failed", "token_rejected")]
    assert receiver.count("noted") == 1
    assert receiver.count("forbidden") == 0
