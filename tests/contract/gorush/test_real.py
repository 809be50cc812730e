"""The client against a real gorush on loopback that reaches neither Apple nor Google."""

import json
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx2
import pytest

from support import answering
from support.real_gorush import BINARY, account, running
from wakupush.devnet.processes import free_port
from wakupush.gorush.client import Gorush
from wakupush.gorush.outcomes import read_answer, read_feedback
from wakupush.model.failures import Failure
from wakupush.model.notifications import Notification
from wakupush.model.platforms import Platform

if not BINARY:
    pytest.skip("WAKUPUSH_TEST_GORUSH does not name a gorush binary", allow_module_level=True)
pytestmark = pytest.mark.real

IOS, ANDROID = Platform.IOS, Platform.ANDROID


def make(notif_id, platform=IOS, **changes):
    values = {"token": "ab" * 32, "message": "m", "data": {"k": ["v"]}}
    if platform is IOS:
        values |= {"topic": "im.app", "collapse_id": "c"}
    return Notification(notif_id=notif_id, platform=platform, **values | changes)


@pytest.fixture(scope="module")
def gorush(tmp_path_factory):
    closed = f"http://127.0.0.1:{free_port()}"
    with running(tmp_path_factory.mktemp("gorush"), core={"http_proxy": closed}) as client:
        yield client


def test_apple_cannot_be_reached(gorush):
    start_time = time.monotonic()
    assert gorush.post([make("a")]).outcomes == [Failure.PLATFORM_UNREACHABLE]
    assert time.monotonic() - start_time < 1


def test_many_one_by_one(gorush):
    """A post of one notification is free of gorush's race: every failure is told."""
    assert [gorush.post([make(f"n{number}")]).outcomes for number in range(200)] == [
        [Failure.PLATFORM_UNREACHABLE]
    ] * 200


def test_large_posts_may_lose_log_entries_but_not_mix(gorush):
    outcomes = gorush.post([make(f"n{number}") for number in range(100)]).outcomes
    assert set(outcomes) <= {Failure.PLATFORM_UNREACHABLE, None}
    assert outcomes.count(Failure.PLATFORM_UNREACHABLE) >= 80


def test_a_platform_that_is_switched_off(gorush):
    assert gorush.post([make("a", ANDROID), make("b", ANDROID)]).outcomes == [Failure.GORUSH_DROPPED] * 2
    mixed = [make("i"), make("a", ANDROID), make("j")]
    assert gorush.post(mixed).outcomes == [
        Failure.PLATFORM_UNREACHABLE,
        Failure.GORUSH_DROPPED,
        Failure.PLATFORM_UNREACHABLE,
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b'{"notifications":[]}',
        b'{"notifications":null}',
        b'{"notifications":[{"tokens":"x","platform":1}]}',
        json.dumps({"notifications": [{"tokens": ["t"], "platform": 1}] * 101}).encode(),
    ],
)
def test_bad_requests(gorush, body):
    answer = httpx2.post(f"{gorush.url}/api/push", content=body, trust_env=False)
    assert read_answer([make("a")], answer.status_code, answer.content) == [Failure.GORUSH_REFUSED]


def test_a_wrong_path(gorush):
    with closing(Gorush(f"{gorush.url}/elsewhere")) as lost:
        assert lost.post([make("a")]).outcomes == [Failure.GORUSH_UNREACHABLE]
        assert not lost.healthy()


def test_strange_texts_are_taken(gorush):
    strange = make("é <&> + \x00", message="\ud83d\ude00", data={"k": "\ud800"})
    assert gorush.post([strange, make("a")]).outcomes == [Failure.PLATFORM_UNREACHABLE] * 2


def test_a_field_of_a_wrong_type_is_refused(gorush):
    assert gorush.post([make("a", fields={"content_available": "true"})]).outcomes == [Failure.GORUSH_REFUSED]


@pytest.mark.parametrize("changes", [{"token": "\x00"}, {"token": "%zz"}, {"topic": "im\napp"}])
def test_token_or_topic_that_breaks_the_request_url(gorush, changes):
    assert gorush.post([make("a", **changes)]).outcomes == [Failure.TOKEN_REJECTED]


def test_gorush_is_gone(tmp_path):
    with running(tmp_path) as gorush:
        assert gorush.healthy()
        url = gorush.url
    with closing(Gorush(url)) as stopped_gorush:
        assert stopped_gorush.post([make("a")]).outcomes == [Failure.GORUSH_UNREACHABLE]


class SlowHook(BaseHTTPRequestHandler):
    """Takes calls of the feedback webhook, and its time."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.3)
        self.server.calls.append((time.monotonic(), dict(self.headers), body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args):
        pass


def test_webhook_precedes_the_sync_answer(tmp_path):
    with answering.running(HTTPServer(("127.0.0.1", 0), SlowHook)) as hook:
        hook.calls = []
        core = {
            "http_proxy": f"http://127.0.0.1:{free_port()}",
            "feedback_hook_url": f"http://127.0.0.1:{hook.server_port}/feedback",
            "feedback_header": ["X-Wakupush-Secret: 0123456789abcdef"],
        }
        android = {"enabled": True, "credential": account("http://127.0.0.1:9/token")}
        with running(tmp_path, core=core, android=android) as gorush:
            outcomes = {}
            for notif_id, platform, token in (("a", IOS, "ab" * 32), ("b", ANDROID, "")):
                outcomes[notif_id] = gorush.post([make(notif_id, platform, token=token)]).outcomes
                answered = time.monotonic()
                called, headers, body = hook.calls[-1]
                assert called < answered
                assert headers["X-Wakupush-Secret"] == "0123456789abcdef"
                assert json.loads(body)["notif_id"] == notif_id
    assert outcomes == {"a": [Failure.PLATFORM_UNREACHABLE], "b": [None]}
    assert [read_feedback(body) for *_, body in hook.calls] == [
        ("a", Failure.PLATFORM_UNREACHABLE),
        ("b", Failure.TOKEN_REJECTED),
    ]


def test_refused_post_is_repeated_one_by_one(tmp_path):
    with running(tmp_path, core={"max_notification": 2}) as gorush:
        post = [make(name) for name in "abc"]
        assert gorush.post(post).outcomes == [Failure.GORUSH_REFUSED] * 3
        assert [gorush.post([each]).outcomes for each in post] == [[Failure.PLATFORM_UNREACHABLE]] * 3


class Google(BaseHTTPRequestHandler):
    """Refuses the service account, and takes calls of the feedback webhook."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_hook = self.path == "/hook"
        if is_hook:
            self.server.feedback.append(body)
        answer = b"" if is_hook else b'{"error":"invalid_grant","error_description":"Invalid JWT"}'
        self.send_response(200 if is_hook else 400)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


def test_webhook_repeats_rejected_google_credentials(tmp_path):
    with answering.running(HTTPServer(("127.0.0.1", 0), Google)) as google:
        google.feedback = []
        url = f"http://127.0.0.1:{google.server_port}"
        android = {"enabled": True, "credential": account(f"{url}/token")}
        with running(tmp_path, android=android, core={"feedback_hook_url": f"{url}/hook"}) as gorush:
            assert gorush.post([make("a", ANDROID)]).outcomes == [Failure.CREDENTIALS_REJECTED]
            assert gorush.post([make("b", ANDROID, token="")]).outcomes == [None]
        failures = [read_feedback(body) for body in google.feedback]
    assert failures == [("a", Failure.CREDENTIALS_REJECTED), ("b", Failure.TOKEN_REJECTED)]
