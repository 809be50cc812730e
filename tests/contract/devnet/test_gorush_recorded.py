"""The development gorush against the recordings of gorush 1.22, and against a real one if there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from support import recordings
from support.real_gorush import BINARY, account, running
from wakupush.devnet.gorush import gorush
from wakupush.devnet.gorush.app import create_app
from wakupush.devnet.gorush.gorush import GorushOptions, ScriptedGorush

Serve = Callable[[Starlette], httpx2.Client]


AREA = "gorush"


@dataclass(frozen=True)
class Replay:
    """How a recording is replayed: gorush's settings and which scripted token stands for which recorded one."""

    settings: GorushOptions = field(default_factory=GorushOptions)
    tokens: dict[str, str] = field(default_factory=dict)
    #: Keys of log entries that are not compared.
    differs: frozenset[str] = frozenset()


SYNC, ASYNC = GorushOptions(), GorushOptions(sync=False)
RETRY = GorushOptions(max_retry=1)
IOS_TOKEN = "a" * 64
ANDROID_TOKEN = "dGVzdA:APA91b" + "x" * 140
# Nothing is sent to Apple or Google for these, so that a real gorush can be asked as well.
WITHOUT_UPSTREAM = (
    "healthz-get",
    "healthz-head",
    "not-found",
    "push-501-android-tokens-sync",
    "push-empty-body-sync",
    "push-empty-notifications-sync",
    "push-empty-object-sync",
    "push-exactly-max-disabled-platform-sync",
    "push-get-method-sync",
    "push-invalid-json-sync",
    "push-missing-platform-sync",
    "push-missing-tokens-android-sync",
    "push-missing-tokens-ios-sync",
    "push-no-content-type-sync",
    "push-null-notifications-sync",
    "push-over-max-sync",
    "push-platform-disabled-sync",
    "push-platform-string-sync",
    "push-trailing-garbage-sync",
    "push-unknown-fields-sync",
    "push-unknown-platform-sync",
    "push-with-authorization",
    "push-wrong-type-sync",
    "stub-fcm-501",
    "stub-fcm-empty-token",
)
# The recorded network error names addresses of the recording's machine, and the token in it is masked.
UNREACHABLE = {
    "push-android-only-sync": {ANDROID_TOKEN: "unreachable"},
    "push-android-with-topic-sync": {ANDROID_TOKEN: "unreachable", "im.status.app": "unreachable-topic"},
    "push-empty-token-string-ios-sync": {"": "unreachable"},
    "push-ios-only-sync": {IOS_TOKEN: "unreachable"},
    "push-mixed-disabled-and-enabled-sync": {IOS_TOKEN: "unreachable"},
    "push-notif_id-sync": {IOS_TOKEN: "unreachable"},
    "push-valid-ios-android-sync": {IOS_TOKEN: "unreachable", ANDROID_TOKEN: "unreachable"},
    "push-weird-token-sync": {"../../evil?x=1 #": "unreachable"},
    "stub-https_proxy-env-ios": {IOS_TOKEN: "unreachable"},
    "unreachable-blackhole-ios": {IOS_TOKEN: "unreachable"},
    "unreachable-refused-android": {"tok": "unreachable"},
    "unreachable-refused-ios": {IOS_TOKEN: "unreachable"},
}
ZEROS = "0" * 50
SCRIPTED = {
    "stub-apns-bad": {f"bad{ZEROS}": "bad-1"},
    "stub-apns-dead": {f"dead{ZEROS}": "dead-1"},
    "stub-apns-empty": {f"empty{ZEROS}": "empty-1"},
    "stub-apns-expired": {f"expired{ZEROS}": "expired-1"},
    "stub-apns-flaky": {f"flaky{ZEROS}": "flaky-1"},
    "stub-apns-ise": {f"ise{ZEROS}": "ise-1"},
    "stub-apns-many": {f"many{ZEROS}": "throttled-1"},
    "stub-apns-payload-4k": {},
    "stub-apns-prov": {f"prov{ZEROS}": "credentials-1"},
    "stub-apns-topic": {f"topic{ZEROS}": "topic-1"},
    "stub-apns-unav": {f"unav{ZEROS}": "unavailable-1"},
    "stub-fcm-auth401": {"tok-AUTH401-1": "credentials-1"},
    "stub-fcm-bad-data-key": {},
    "stub-fcm-flaky": {"tok-FLAKY-1": "flaky-1"},
    "stub-fcm-internal": {"tok-INTERNAL-1": "ise-1"},
    "stub-fcm-invalid": {"tok-INVALID-1": "bad-1"},
    "stub-fcm-quota": {"tok-QUOTA-1": "throttled-1"},
    "stub-fcm-sender": {"tok-SENDER-1": "mismatch-1"},
    "stub-fcm-unavail": {"tok-UNAVAIL-1": "unavailable-1"},
    "stub-fcm-unreg": {"tok-UNREG-1": "dead-1"},
    "stub-ios-alert-only-message": {},
    "stub-ios-weird-token": {},
    "stub-mixed-tokens-android": {"UNREG-1": "dead-1", "INVALID-2": "bad-2"},
    "stub-mixed-tokens-ios": {f"dead{'1' * 50}": "dead-1", f"bad{'1' * 50}": "bad-1"},
    "stub-ok-android": {},
    "stub-ok-both": {},
    "stub-ok-ios": {},
}
SCRIPTED_WITHOUT_RETRY = {
    "stub-hosts-android-topic-mixed": {},
    "stub-hosts-dead": {f"dead{'0' * 60}": "dead-1", "tok-UNREG": "dead-2"},
    "stub-hosts-ok": {},
    "stub-https_proxy-env-fcm-dead": {"tok-UNREG": "dead-1"},
    "stub-https_proxy-env-fcm-ok": {},
}
NOT_REPLAYED = {
    **dict.fromkeys(
        (
            "push-body-9MB-async",
            "push-body-9MB-sync",
            "push-long-token-async",
            "push-long-token-sync",
            "push-payload-over-4k-async",
            "push-payload-over-4k-sync",
            "stub-100-notifs",
            "stub-100-notifs-dead",
        ),
        "the recording holds only the beginning of the request",
    ),
    **dict.fromkeys(("metrics", "version"), "compared by shape below"),
    **dict.fromkeys(
        ("config", "queue-full-async-after-stat", "root", "stat-app", "stat-go", "sys-stats"),
        "not built: nothing of ours reads it",
    ),
    **dict.fromkeys((f"feedback-webhook-{n}" for n in range(3)), "calls of the webhook, compared below"),
    "feedback-trigger-hook-ok": "the recording holds only the beginning of the request",
    **dict.fromkeys((f"queue-full-async-{n}" for n in (*range(6), "batch", "partial")), "the queue is never full"),
    **dict.fromkeys(("queue-full-sync", "queue-full-sync-after"), "the queue is never full; `hang` answers so"),
    **dict.fromkeys(("push-during-shutdown", "sigterm-inflight-async", "sigterm-inflight-sync"), "shutdown"),
    "unreachable-blackhole-android": "was never answered; `hang` answers so",
    "fcm-via-core-http_proxy-broken-h2": "proxy experiment",
    "_throughput-accept-e2e": "a measurement",
}
REPLAYS = {
    **dict.fromkeys(WITHOUT_UPSTREAM, Replay()),
    **{
        name: Replay(settings=ASYNC)
        for name in recordings.names(AREA)
        if name.startswith("push-") and name.endswith("-async") and name not in NOT_REPLAYED
    },
    **{name: Replay(tokens=tokens, differs=frozenset({"token", "error"})) for name, tokens in UNREACHABLE.items()},
    **{name: Replay(settings=RETRY, tokens=tokens) for name, tokens in SCRIPTED.items()},
    **{name: Replay(tokens=tokens) for name, tokens in SCRIPTED_WITHOUT_RETRY.items()},
    **{f"feedback-trigger-hook-{name}": Replay(settings=ASYNC) for name in ("err", "slow")},
}


def test_every_recording_is_accounted_for() -> None:
    assert set(REPLAYS) | set(NOT_REPLAYED) == recordings.names(AREA)
    assert not set(REPLAYS) & set(NOT_REPLAYED)


@pytest.mark.parametrize("name", sorted(REPLAYS))
def test_answers_as_recorded(name: str, serve: Serve) -> None:
    replay = REPLAYS[name]
    client = serve(create_app(ScriptedGorush(replay.settings)))
    _compare(recordings.load(AREA, name), client, replay)


def _compare(recording: recordings.Recording, client: httpx2.Client, replay: Replay) -> None:
    body = recording.body
    if isinstance(body, dict):
        body = {**body, "notifications": _with_tokens(body.get("notifications"), replay.tokens)}
        body = {key: value for key, value in body.items() if key in recording.body}
    answer = client.request(
        recording.method, recording.path, headers=recording.headers, content=recording.content(body)
    )
    assert answer.status_code == recording.status
    assert answer.headers.get("content-type") == recording.content_type
    assert answer.headers["x-gorush-version"]
    if recording.method == "HEAD":
        assert answer.text == ""
    elif isinstance(recording.answer, str):
        assert answer.text == recording.answer
    else:
        assert _comparable(answer.json(), replay) == _comparable(recording.answer, replay)


def _with_tokens(notifications: Any, tokens: dict[str, str]) -> Any:
    if not tokens:
        return notifications
    return [
        {
            **it,
            "tokens": [tokens.get(token, token) for token in it["tokens"]],
            **({"topic": tokens.get(it["topic"], it["topic"])} if "topic" in it else {}),
        }
        for it in notifications
    ]


def _comparable(answer: dict[str, Any], replay: Replay) -> dict[str, Any]:
    if "logs" not in answer:
        return answer
    recorded = {scripted: token for token, scripted in replay.tokens.items()}
    logs = [{**entry, "token": recorded.get(entry["token"], entry["token"])} for entry in answer["logs"]]
    return {**answer, "logs": [{key: "" if key in replay.differs else it[key] for key in it} for it in logs]}


def test_masks_tokens_as_recorded(serve: Serve) -> None:
    client = serve(create_app(ScriptedGorush(GorushOptions(hide_token=True))))
    assert _push(client, _ios("dead-1")).json()["logs"][0]["token"] == "*" * 6
    for name in sorted(UNREACHABLE.keys() - {"stub-https_proxy-env-ios"}):
        recording = recordings.load(AREA, name)
        tokens = [
            token
            for it in recording.body["notifications"]
            if it["platform"] != 3
            for token in ([it["topic"]] if it["platform"] == 2 and "topic" in it else []) + it["tokens"]
        ]
        assert [gorush._mask(token) for token in tokens] == [it["token"] for it in recording.answer["logs"]], name
    feedback = recordings.load(AREA, "feedback-webhook-0")
    assert gorush._mask("dead" + "0" * 60) == feedback.body["token"]


@pytest.mark.real
@pytest.mark.parametrize("name", WITHOUT_UPSTREAM)
def test_real_gorush_answers_the_same(name: str, real_gorush: httpx2.Client) -> None:
    _compare(recordings.load(AREA, name), real_gorush, Replay())


@pytest.fixture(scope="module")
def real_gorush(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A gorush behind a proxy that refuses every connection."""
    if not BINARY:
        pytest.skip("set WAKUPUSH_TEST_GORUSH to a gorush 1.22 binary")
    core = {"http_proxy": "http://127.0.0.1:9"}
    android = {"enabled": True, "credential": account("http://127.0.0.1:9/token")}
    with (
        running(tmp_path_factory.mktemp("gorush"), core=core, android=android, log={"hide_token": False}) as gorush,
        httpx2.Client(base_url=gorush.url, timeout=60) as client,
    ):
        yield client


def _ios(token: str) -> dict[str, Any]:
    return {"tokens": [token], "platform": 1, "message": "m"}


def _push(client: httpx2.Client, *notifications: dict[str, Any]) -> httpx2.Response:
    return client.post("/api/push", json={"notifications": notifications})
