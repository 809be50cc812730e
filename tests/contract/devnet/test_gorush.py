"""The development gorush: its webhook, what it counts and shows, tokens that are scripts, and faults on demand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from support import recordings
from wakupush.devnet.gorush.app import VERSION, create_app
from wakupush.devnet.gorush.gorush import GorushOptions, ScriptedGorush

Serve = Callable[[Starlette], httpx2.Client]


AREA = "gorush"
SYNC, ASYNC = GorushOptions(), GorushOptions(sync=False)


class Hook:
    """A receiver of the webhook that answers as it is told."""

    def __init__(self, serve: Serve) -> None:
        self.calls: list[tuple[dict[str, str], str]] = []
        self.status, self.seconds = 200, 0.0
        self.url = f"{serve(Starlette(routes=[Route('/hook', self._take, methods=['POST'])])).base_url}/hook?x=1"

    async def _take(self, request: Request) -> Response:
        self.calls.append((dict(request.headers), (await request.body()).decode()))
        await asyncio.sleep(self.seconds)
        return Response(status_code=self.status)

    @property
    def errors(self) -> list[tuple[str, str]]:
        return [(body["notif_id"], body["error"]) for body in (json.loads(text) for _, text in self.calls)]


@pytest.fixture
def hook(serve: Serve) -> Hook:
    return Hook(serve)


def hooked(serve: Serve, hook: Hook, **settings: Any) -> httpx2.Client:
    gorush = ScriptedGorush(
        GorushOptions(feedback_url=hook.url, feedback_headers=("X-Hook-Token: s3cret",), **settings)
    )
    return serve(create_app(gorush))


def test_calls_the_webhook_as_recorded(serve: Serve, hook: Hook) -> None:
    recorded = [recordings.load(AREA, f"feedback-webhook-{n}") for n in range(3)]
    client = hooked(serve, hook, hide_token=True)
    scripted = ["dead" + "*" * 60, "dead-", ""]
    for recording, token in zip(recorded, scripted, strict=True):
        push = {"tokens": [token], "platform": {"ios": 1, "android": 2}[recording.body["platform"]], "message": "m"}
        _push(client, push | {"notif_id": recording.body["notif_id"]})
    assert len(hook.calls) == 3
    for (headers, text), recording in zip(hook.calls, recorded, strict=True):
        body = json.loads(text)
        assert list(body) == list(recording.body)
        assert {**body, "token": ""} == {**recording.body, "token": ""}
        for name in ("Content-Type", "X-Hook-Token"):
            assert headers[name.lower()] == recording.headers[name]
        assert set(body["token"]) <= {*"*", *"dead"}


def test_webhook_precedes_and_completes_the_answer(serve: Serve, hook: Hook) -> None:
    hook.seconds = 0.1
    client = hooked(serve, hook)
    begin = time.monotonic()
    answer = _push(client, _named("dead", 1), _named("total-dead", 2), _named("total-flaky-1", 2), _named("ok", 2))
    assert time.monotonic() - begin >= 0.1
    assert [entry["notif_id"] for entry in answer.json()["logs"]] == ["dead"]
    assert sorted(hook.errors) == [
        ("dead", "Unregistered"),
        ("total-dead", "Requested entity was not found."),
        ("total-flaky-1", "Internal error encountered."),
    ]
    assert _push(client, _named("total-flaky-1", 2)).json()["logs"] == []
    assert len(hook.calls) == 3


def test_calls_the_webhook_once_whatever_it_answers(serve: Serve, hook: Hook) -> None:
    client = hooked(serve, hook, feedback_timeout=0.2)
    hook.status = 500
    _push(client, _named("dead", 1))
    hook.status, hook.seconds = 200, 1.0
    assert len(_push(client, _named("dead", 1)).json()["logs"]) == 1
    assert len(hook.calls) == 2
    assert client.get("/dev/counters").json()["feedback_lost"] == 2


def test_metrics_have_the_recorded_shape(serve: Serve) -> None:
    client = serve(create_app())
    recorded = recordings.load(AREA, "metrics")
    metrics = client.get("/metrics")
    described = [line for line in recorded.answer.splitlines() if line.startswith("#") and " gorush_" in line]
    assert [line for line in metrics.text.splitlines() if line.startswith("#")] == described
    assert metrics.headers["content-type"] == recorded.content_type
    source = recordings.load(AREA, "version").answer["source"]
    assert client.get("/version").json() == {"source": source, "version": VERSION}


def test_counts_what_it_did(serve: Serve) -> None:
    client = serve(create_app())
    _push(client, _ios("ok"), _ios("dead-1"), _android("bad-1"), _android(""))
    counters = client.get("/dev/counters").json()
    assert counters == {
        "total_push_count": 4,
        "ios_success": 1,
        "ios_error": 1,
        "android_success": 0,
        "android_fail": 1,
        "huawei_success": 0,
        "huawei_fail": 0,
        "busy_workers": 0,
        "submitted_tasks": 4,
        "success_tasks": 3,
        "failure_tasks": 1,
    }
    assert "\ngorush_ios_error 1\n" in client.get("/metrics").text


def test_log_shows_every_push_without_consuming_it(serve: Serve) -> None:
    client = serve(create_app())
    before = time.time()
    _push(client, _ios("ok-1") | {"data": {"k": 1}, "unknown": [1]})
    _push(client, _android(""), _android("dead-1"))
    log = client.get("/dev/log").json()
    assert log == client.get("/dev/log").json()
    assert log["next"] == 3
    assert [(it["post"], it["platform"], it["token"], it["outcome"]) for it in log["entries"]] == [
        (1, "ios", "ok-1", "delivered"),
        (2, "android", "", "refused"),
        (2, "android", "dead-1", "Requested entity was not found."),
    ]
    assert log["entries"][0]["notification"] == _ios("ok-1") | {"data": {"k": 1}, "unknown": [1]}
    assert before <= log["entries"][0]["at"] <= time.time()
    assert [it["seq"] for it in client.get("/dev/log?after=1").json()["entries"]] == [2, 3]
    assert client.get("/dev/log?after=3").json() == {"entries": [], "next": 3}


def test_apples_limit_counts_what_wakes_the_app(serve: Serve) -> None:
    client = serve(create_app(ScriptedGorush()))
    notification = {
        "tokens": ["ab" * 32],
        "platform": 1,
        "message": "Someone sent you a contact request",
        "content_available": True,
        "sound": "default",
        "priority": "high",
        "push_type": "alert",
        "data": {
            "chatId": "0x63686174",
            "deepLink": "status-app://contact-requests",
            "encryptedMessage": "0x6d657373616765",
            "publicKey": "0x" + "61" * 64,
        },
    }
    # gorush 1.22 sent a stand-in for Apple 342 bytes for this; the limit is 4,096.
    for more, errors in ((4096 - 342, []), (4097 - 342, ["PayloadTooLarge"])):
        longer = {**notification["data"], "encryptedMessage": notification["data"]["encryptedMessage"] + "0" * more}
        assert [entry["error"] for entry in _push(client, {**notification, "data": longer}).json()["logs"]] == errors


def test_flaky_token_fails_for_each_notification_anew(serve: Serve) -> None:
    client = serve(create_app())
    errors = [
        [it["error"] for it in _push(client, _ios("flaky-2") | {"notif_id": notif_id}).json()["logs"]]
        for notif_id in ("one", "one", "one", "two")
    ]
    assert errors == [["InternalServerError"], ["InternalServerError"], [], ["InternalServerError"]]


def test_slow_tokens_take_their_time_side_by_side(serve: Serve) -> None:
    client = serve(create_app())
    begin = time.monotonic()
    logs = _push(client, *(_android(f"slow-500-dead-{n}") for n in range(5)), _android("slow-500")).json()["logs"]
    assert 0.5 <= time.monotonic() - begin < 6 * 0.5
    assert [it["error"] for it in logs] == ["Requested entity was not found."] * 5


def test_a_random_apns_token_is_never_a_script(serve: Serve) -> None:
    client = serve(create_app())
    assert _push(client, _ios("bad" + "0" * 61)).json()["logs"] == []


def test_malformed_token_fails_its_whole_request(serve: Serve) -> None:
    client = serve(create_app())
    assert _push(client, _ios("ok"), _android("malformed-1")).status_code == 400
    assert client.get("/dev/log").json()["entries"] == []
    assert _push(client, _ios("ok")).status_code == 200


def test_async_mode_answers_before_delivery(serve: Serve) -> None:
    client = serve(create_app(ScriptedGorush(ASYNC)))
    answer = _push(client, _ios("slow-50-dead"))
    assert answer.json() == {"counts": 1, "logs": [], "success": "ok"}
    assert client.get("/dev/log").json()["entries"] == []
    time.sleep(0.1)
    assert client.get("/dev/log").json()["entries"][0]["outcome"] == "Unregistered"


def test_fault_status_takes_nothing_unless_handled(serve: Serve) -> None:
    client = serve(create_app())
    _fault(client, kind="status", status=500, times=1, path="/api/push")
    _fault(client, kind="status", status=429, body="slow down", times=1, handled=True, path="/api/push")
    assert client.get("/healthz").status_code == 200
    assert (answer := _push(client, _ios("ok"))).status_code == 500
    assert answer.content == b""
    assert client.get("/dev/log").json()["next"] == 0
    assert (answer := _push(client, _ios("ok"))).status_code == 429
    assert answer.text == "slow down"
    assert client.get("/dev/log").json()["next"] == 1
    assert _push(client, _ios("ok")).status_code == 200


def test_fault_hang_and_delay(serve: Serve) -> None:
    client = serve(create_app())
    _fault(client, kind="hang", times=1, handled=True)
    with pytest.raises(httpx2.ReadTimeout):
        client.post("/api/push", json={"notifications": [_ios("ok")]}, timeout=0.1)
    assert client.get("/dev/log").json()["next"] == 1
    _fault(client, kind="delay", seconds=0.15)
    begin = time.monotonic()
    assert _push(client, _ios("dead")).json()["logs"]
    assert time.monotonic() - begin >= 0.15
    client.delete("/dev/faults")
    assert client.get("/dev/faults").json() == []


def test_fault_close_garbage_and_dropped_logs(serve: Serve) -> None:
    client = serve(create_app())
    for kind in ("close", "garbage", "drop_logs"):
        _fault(client, kind=kind, times=1, path="/api/push")
    with pytest.raises(httpx2.RemoteProtocolError):
        _push(client, _ios("dead"))
    answer = _push(client, _ios("dead"))
    with pytest.raises(json.JSONDecodeError):
        answer.json()
    assert _push(client, _ios("dead")).json() == {"counts": 1, "logs": [], "success": "ok"}
    assert [it["outcome"] for it in client.get("/dev/log").json()["entries"]] == ["Unregistered"] * 3


def test_fault_that_does_not_exist_is_refused(serve: Serve) -> None:
    client = serve(create_app())
    assert client.post("/dev/faults", json={"kind": "fire"}).status_code == 400
    assert client.post("/dev/faults", json={"kind": "hang", "often": 1}).status_code == 400


def _ios(token: str) -> dict[str, Any]:
    return {"tokens": [token], "platform": 1, "message": "m"}


def _android(token: str) -> dict[str, Any]:
    return {"tokens": [token], "platform": 2, "message": "m"}


def _named(token: str, platform: int) -> dict[str, Any]:
    return {"tokens": [token], "platform": platform, "message": "m", "notif_id": token}


def _push(client: httpx2.Client, *notifications: dict[str, Any]) -> httpx2.Response:
    return client.post("/api/push", json={"notifications": notifications})


def _fault(client: httpx2.Client, **fault: Any) -> None:
    assert client.post("/dev/faults", json=fault).status_code == 200
