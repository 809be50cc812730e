"""The client against a real server on loopback that answers as told."""

import json
import logging
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.answering import drip, hang, late_half, serving
from wakupush.devnet.processes import wait_until
from wakupush.gorush import client as client_module
from wakupush.gorush.client import Gorush
from wakupush.model.failures import Failure
from wakupush.model.notifications import Notification
from wakupush.model.platforms import Platform

ACCEPTED = (200, b'{"success":"ok","counts":1,"logs":[]}')


@pytest.fixture
def server():
    with serving(ACCEPTED) as running:
        yield running


@pytest.fixture
def gorush(server):
    with closing(Gorush(server.url)) as client:
        yield client


def hang_up(handler):
    """Answer, and close the connection without a word that it is not kept."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ACCEPTED[1]), ACCEPTED[1]))


def make(notif_id="n1", platform=Platform.ANDROID):
    return Notification(notif_id=notif_id, token="secret-token", platform=platform, message="m", data={"k": "v"})


def test_a_post(server, gorush):
    assert gorush.post([make()]).outcomes == [None]
    [(method, path, content_type, body)] = server.requests
    assert (method, path, content_type) == ("POST", "/api/push", "application/json")
    assert json.loads(body) == {"notifications": [make().to_json()]}


def test_a_path_before_the_api(server):
    with closing(Gorush(f"{server.url}/gorush/")) as client:
        client.post([make()])
    assert server.requests[0][1] == "/gorush/api/push"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((400, b'{"code":400,"message":"Missing notifications field."}'), Failure.GORUSH_REFUSED),
        ((429, b""), Failure.GORUSH_THROTTLED),
        ((500, b""), Failure.GORUSH_FAILED),
        ((200, b"<html>"), Failure.GORUSH_UNREADABLE),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nno", Failure.GORUSH_UNREADABLE),
        (b"", Failure.GORUSH_TIMED_OUT),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", Failure.GORUSH_TIMED_OUT),
        (b"SSH-2.0-not-http\r\n", Failure.GORUSH_TIMED_OUT),
    ],
)
def test_nothing_that_gorush_does_raises(server, gorush, answer, expected):
    server.answers = [answer]
    assert gorush.post([make("a"), make("b")]).outcomes == [expected] * 2


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("Sat, 14 Nov 2026 12:02:00 GMT", 120.0),
        ("Sat, 14 Nov 2026 11:00:00 GMT", 0.0),
        ("", 0.0),
        ("-1", 0.0),
        ("1.5", 0.0),
        ("soon", 0.0),
        ("9999999999", 0.0),
        ("\u0663", 0.0),  # a digit to Python
    ],
)
def test_retry_after(header, seconds):
    now = datetime(2026, 11, 14, 12, tzinfo=UTC).timestamp()
    assert client_module.read_retry_after(header, now) == seconds


@given(st.text())
def test_no_retry_after_raises(header):
    assert client_module.read_retry_after(header, time.time()) >= 0


def test_gorush_asks_to_be_left_alone(server, gorush):
    server.answers = [b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"]
    posted = gorush.post([make("a"), make("b")])
    assert (posted.outcomes, posted.retry_after) == ([Failure.GORUSH_THROTTLED] * 2, 7.0)


@pytest.mark.parametrize(("answer", "expected"), [(hang, Failure.GORUSH_TIMED_OUT), (drip, Failure.GORUSH_TIMED_OUT)])
def test_no_answer_in_time(server, answer, expected):
    server.answers = [answer]
    start_time = time.monotonic()
    with closing(Gorush(server.url, timeout=0.2)) as hasty:
        assert hasty.post([make()]).outcomes == [expected]
    assert time.monotonic() - start_time < 30


def test_the_time_of_a_post_runs_from_its_beginning(server):
    server.answers = [late_half]
    start_time = time.monotonic()
    with closing(Gorush(server.url, timeout=4)) as client:
        assert client.post([make()]).outcomes == [Failure.GORUSH_TIMED_OUT]
    assert time.monotonic() - start_time < 7


def test_nothing_listens():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with closing(Gorush(f"http://127.0.0.1:{reserved.getsockname()[1]}")) as client:
            assert client.post([make()]).outcomes == [Failure.GORUSH_UNREACHABLE]
            assert not client.healthy()


def test_posts_at_the_same_time(server):
    server.answers = [hang, ACCEPTED]
    with closing(Gorush(server.url, timeout=5)) as client, ThreadPoolExecutor() as pool:
        hung = pool.submit(client.post, [make("a")])
        wait_until(lambda: server.requests, timeout=30, what="the first post came")
        assert client.post([make("b")]).outcomes == [None]
        assert not hung.done()
        server.stopped.set()
        assert hung.result().outcomes == [Failure.GORUSH_TIMED_OUT]


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("ending", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"])
def test_lost_post_on_a_kept_connection_is_final(server, gorush, size, ending):
    server.answers = [ACCEPTED, ending, ACCEPTED]
    assert gorush.post([make("before")]).outcomes == [None]
    lost = [make(str(number)) for number in range(size)]
    assert gorush.post(lost).outcomes == [Failure.GORUSH_TIMED_OUT] * size
    assert len(server.requests) == 2
    assert gorush.post([make("after")]).outcomes == [None]


def test_closed_idle_connection_costs_no_attempt(server, gorush):
    for number in range(3):
        server.answers = [hang_up]
        assert gorush.post([make(str(number))]).outcomes == [None]
        time.sleep(0.05)
    assert len(server.requests) == 3


def test_a_connection_that_is_not_taken():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as others:
        for _ in range(4):
            waiting = others.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        with closing(Gorush(f"http://127.0.0.1:{full.getsockname()[1]}", connect_timeout=0.2, timeout=30)) as client:
            start_time = time.monotonic()
            assert client.post([make()]).outcomes == [Failure.GORUSH_UNREACHABLE]
    assert time.monotonic() - start_time < 15


def test_an_answer_that_is_too_long_is_unreadable(server, gorush, monkeypatch):
    monkeypatch.setattr(client_module, "ANSWER_LIMIT", 1000)
    server.answers = [(200, b" " * 100_000 + ACCEPTED[1])]
    assert gorush.post([make()]).outcomes == [Failure.GORUSH_UNREADABLE]


@pytest.mark.parametrize("notifications", [[], [make()] * 2, [make(str(number)) for number in range(101)]])
def test_a_post_that_the_caller_must_not_make(server, gorush, notifications):
    with pytest.raises(ValueError, match="notif") as caught:
        gorush.post(notifications)
    assert "secret-token" not in str(caught.value)
    assert not server.requests


def test_a_full_post(server, gorush):
    server.answers = [(200, b'{"counts":100,"logs":[]}')]
    assert gorush.post([make(str(number)) for number in range(100)]).outcomes == [None] * 100


def test_health(server, gorush):
    server.answers = [(200, b"")]
    assert gorush.healthy()
    assert server.requests[0][:2] == ("GET", "/healthz")
    server.answers = [(503, b"")]
    assert not gorush.healthy()


def test_health_does_not_wait_long(server, gorush, monkeypatch):
    monkeypatch.setattr(client_module, "HEALTH_TIMEOUT", 0.05)
    server.answers = [hang]
    assert not gorush.healthy()


def test_tokens_are_not_logged(gorush, caplog):
    with caplog.at_level(logging.DEBUG):
        gorush.post([make()])
    assert "secret-token" not in caplog.text


@given(status=st.integers(200, 599), body=st.binary(max_size=100))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
def test_any_answer_is_one_outcome_each(server, gorush, status, body):
    server.answers = [(status, b"" if status in (204, 304) else body)]
    assert len(gorush.post([make("a"), make("b")]).outcomes) == 2
    assert gorush.healthy() == (status == 200)
