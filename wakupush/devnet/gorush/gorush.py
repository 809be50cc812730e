"""How a development gorush handles the notifications of a request, without HTTP around it."""

import asyncio
import json
import re
import time
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx2

from wakupush.devnet.controls import EventLog
from wakupush.devnet.gorush import platforms
from wakupush.devnet.gorush.scripts import SCRIPTS, SERVER_ERROR, ScriptedFailure

_TOO_LARGE = {
    "ios": ScriptedFailure("PayloadTooLarge", retried=False),
    "android": ScriptedFailure("Android message is too big", retried=True),
}
_HEADERS_TOO_LARGE = ScriptedFailure(
    'Post "https://api.push.apple.com/3/device/": http2: request header list larger than peer\'s advertised limit',
    retried=False,
)
#: core.max_notification.
_MAX_NOTIFICATIONS = 100
_MAX_PAYLOAD = 4096
_APNS_MAX_HEADERS = 8000
_FCM_MAX_TOKENS = 500
_MASKED_TOKEN_END = 10

_APNS_TOKEN = re.compile(r"[0-9a-fA-F]{64}")
_FLAKY = re.compile(r"flaky-(\d+)")
_SLOW = re.compile(r"slow-(\d+)-?")
_TOTAL = "total-"
_MALFORMED = "malformed-"
_INVALID = "fcm service send message error: invalid message at index 0: {}"
_TOO_MANY = "you can specify up to 500 device registration tokens per invocation"

_PLATFORMS = {1: "ios", 2: "android"}

#: Of each counter: its name, its kind and its text.
METRICS = (
    ("total_push_count", "counter", "Number of push count"),
    ("ios_success", "counter", "Number of iOS success count"),
    ("ios_error", "counter", "Number of iOS fail count"),
    ("android_success", "counter", "Number of android success count"),
    ("android_fail", "counter", "Number of android fail count"),
    ("huawei_success", "counter", "Number of huawei success count"),
    ("huawei_fail", "counter", "Number of huawei fail count"),
    ("busy_workers", "gauge", "Length of busy workers"),
    ("submitted_tasks", "counter", "Length of Submitted Tasks"),
    ("success_tasks", "counter", "Length of Success Tasks"),
    ("failure_tasks", "counter", "Length of Failure Tasks"),
)
_SUCCESS = {"ios": "ios_success", "android": "android_success"}
_FAILURE = {"ios": "ios_error", "android": "android_fail"}


@dataclass(frozen=True, kw_only=True)
class GorushOptions:
    """The part of gorush's configuration that changes its answers."""

    #: core.sync: answer after delivery and with the failures.
    sync: bool = True
    #: ios.max_retry and android.max_retry.
    max_retry: int = 0
    #: log.hide_token.
    hide_token: bool = False
    #: Keeps the log of the controls over a restart.
    log_file: Path | None = None
    #: core.feedback_hook_url; empty calls no webhook.
    feedback_url: str = ""
    #: core.feedback_header, each ``Name: value``.
    feedback_headers: tuple[str, ...] = ()
    #: core.feedback_timeout, seconds.
    feedback_timeout: float = 10.0


class BadRequestError(ValueError):
    """gorush answers 400 with this text."""


class ScriptedGorush:
    """The state of a development gorush."""

    def __init__(self, settings: GorushOptions | None = None) -> None:
        self.settings = settings or GorushOptions()
        self.log = EventLog(file=self.settings.log_file)
        self.counters: Counter[str] = Counter({name: 0 for name, *_ in METRICS})
        self._posts = 0
        # Loading the certificates for each call would take 20 ms.
        self._tls = httpx2.create_ssl_context(trust_env=False)
        self._flaky_attempts: Counter[tuple[str, str]] = Counter()
        self._queue: set[asyncio.Future[list[list[dict[str, str]]]]] = set()

    async def push(self, body: bytes) -> dict[str, Any]:
        """Take the notifications of one request and return the answer.

        Raises:
            BadRequestError: the request is refused as a whole.
        """
        notifications = self._notifications(body)
        self._posts += 1
        counts = sum(len(it.get("tokens") or ()) + bool(it.get("topic")) for it in notifications)
        self.counters["total_push_count"] += counts
        self.counters["submitted_tasks"] += len(notifications)
        deliveries = asyncio.gather(*(self._deliver(it, self._posts) for it in notifications))
        logs: list[dict[str, str]] = []
        if self.settings.sync:
            logs = [entry for entries in await deliveries for entry in entries]
        else:
            self._queue.add(deliveries)
            deliveries.add_done_callback(self._queue.discard)
        return {"counts": counts, "logs": logs, "success": "ok"}

    def _notifications(self, body: bytes) -> list[dict[str, Any]]:
        """Return the notifications of the enabled platforms; the others are dropped silently."""
        try:
            # As Go's decoder, look at the first JSON value and at nothing after it.
            request, _ = json.JSONDecoder().raw_decode(body.decode(errors="replace").lstrip())
            notifications = [platforms.check(it) for it in _list(request["notifications"])]
        except (ValueError, TypeError, KeyError) as error:
            raise BadRequestError("Missing notifications field.") from error
        if not notifications:
            raise BadRequestError("Notifications field is empty.")
        if any(token.startswith(_MALFORMED) for it in notifications for token in it.get("tokens") or ()):
            raise BadRequestError("Missing notifications field.")
        if len(notifications) > _MAX_NOTIFICATIONS:
            raise BadRequestError(f"Number of notifications({len(notifications)}) over limit({_MAX_NOTIFICATIONS})")
        return [it for it in notifications if it.get("platform") in _PLATFORMS]

    async def _deliver(self, notification: dict[str, Any], post: int) -> list[dict[str, str]]:
        """Deliver one notification, a task of gorush's queue; return its log entries, one for each failed attempt."""
        platform = _PLATFORMS[notification["platform"]]
        tokens = list(notification.get("tokens") or ())
        if platform == "android" and (refusal := _refusal(notification)):
            for token in tokens:
                self._record(notification, post, token, "refused")
            named = tokens if refusal is _TOO_MANY else [""]
            return await self._fail_totally(notification, [(token, refusal) for token in named])
        if platform == "android" and notification.get("topic"):
            tokens.insert(0, notification["topic"])
        self.counters["busy_workers"] += 1
        entries: list[dict[str, str]] = []
        for _ in range(1 + self.settings.max_retry):
            outcomes = await asyncio.gather(*(self._attempt(notification, post, token) for token in tokens))
            failures = [(token, failure) for token, failure in zip(tokens, outcomes, strict=True) if failure]
            if platform == "android" and any(token.startswith(_TOTAL) for token, _ in failures):
                self.counters["busy_workers"] -= 1
                return await self._fail_totally(notification, [(token, it.error) for token, it in failures])
            entries += [self._entry(notification, token, failure.error) for token, failure in failures]
            tokens = [token for token, failure in failures if failure.retried]
        self.counters["busy_workers"] -= 1
        self.counters["success_tasks"] += 1
        await self._call_hook(entries)
        return entries

    async def _fail_totally(
        self, notification: dict[str, Any], failures: list[tuple[str, str]]
    ) -> list[dict[str, str]]:
        """Report a notification that failed as a whole to the webhook only; return no log entries."""
        self.counters["failure_tasks"] += 1
        await self._call_hook([self._entry(notification, token, error) for token, error in failures])
        return []

    async def _call_hook(self, entries: list[dict[str, str]]) -> None:
        """Call the feedback webhook once for each entry, one after another, as gorush does before it answers."""
        if not self.settings.feedback_url or not entries:
            return
        headers = dict(header.split(": ", 1) for header in self.settings.feedback_headers)
        headers["Content-Type"] = "application/json; charset=utf-8"
        timeout, tls = self.settings.feedback_timeout, self._tls
        async with httpx2.AsyncClient(headers=headers, timeout=timeout, trust_env=False, verify=tls) as client:
            for entry in entries:
                try:
                    content = dump(entry).encode(errors="replace")
                    answer = await client.post(self.settings.feedback_url, content=content)
                    is_taken = answer.status_code == HTTPStatus.OK
                except httpx2.TransportError:
                    is_taken = False
                self.counters["feedback_sent" if is_taken else "feedback_lost"] += 1

    async def _attempt(self, notification: dict[str, Any], post: int, token: str) -> ScriptedFailure | None:
        platform = _PLATFORMS[notification["platform"]]
        script = token
        if slow := _SLOW.match(script):
            await asyncio.sleep(int(slow[1]) / 1000)
            script = script[slow.end() :]
        failure = self._failure(notification, platform, script)
        self.counters[_FAILURE[platform] if failure else _SUCCESS[platform]] += 1
        self._record(notification, post, token, failure.error if failure else "delivered")
        return failure

    def _failure(self, notification: dict[str, Any], platform: str, script: str) -> ScriptedFailure | None:
        if payload_bytes(notification) > _MAX_PAYLOAD:
            return _TOO_LARGE[platform]
        if platform == "ios" and len(script) + len(notification.get("topic") or "") > _APNS_MAX_HEADERS:
            return _HEADERS_TOO_LARGE
        if _APNS_TOKEN.fullmatch(script):
            return None
        script = script.removeprefix(_TOTAL)
        if flaky := _FLAKY.match(script):
            key = (str(notification.get("notif_id")).partition("-")[0], script)
            self._flaky_attempts[key] += 1
            return SERVER_ERROR.failure(platform) if self._flaky_attempts[key] <= int(flaky[1]) else None
        return next((it.failure(platform) for prefix, it in SCRIPTS.items() if script.startswith(prefix)), None)

    def _record(self, notification: dict[str, Any], post: int, token: str, outcome: str) -> None:
        self.log.append(
            {
                "at": time.time(),
                "post": post,
                "platform": _PLATFORMS[notification["platform"]],
                "token": token,
                "outcome": outcome,
                "notification": notification,
            }
        )

    def _entry(self, notification: dict[str, Any], token: str, error: str) -> dict[str, str]:
        return {
            **({"notif_id": notification["notif_id"]} if notification.get("notif_id") else {}),
            "type": "failed-push",
            "platform": _PLATFORMS[notification["platform"]],
            "token": _mask(token) if self.settings.hide_token else token,
            "message": notification.get("message") or "",
            "error": error,
        }


def dump(content: dict[str, Any]) -> str:
    """Return JSON as gorush writes it."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def payload_bytes(notification: dict[str, Any]) -> int:
    """Return how many bytes of a notification its platform counts.

    Google does not say what it counts: here it counts all but the token.
    """
    is_ios = _PLATFORMS[notification["platform"]] == "ios"
    payload = platforms.apple(notification)[1] if is_ios else platforms.google(notification)
    return len(platforms.encode(payload).encode(errors="replace"))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _refusal(notification: dict[str, Any]) -> str | None:
    """Return why the Firebase library refuses the whole notification; gorush's answer does not say so."""
    tokens = notification.get("tokens") or ()
    if len(tokens) > _FCM_MAX_TOKENS:
        return _TOO_MANY
    if "" in tokens or not (tokens or notification.get("topic")):
        return _INVALID.format("exactly one of token, topic or condition must be specified")
    try:
        platforms.google(notification)
    except platforms.RefusedByFirebaseError as error:
        return _INVALID.format(error)
    return None


def _mask(token: str) -> str:
    """Hide a token as gorush does: all of a short one, else every occurrence of its last and first ten characters."""
    if len(token) < 2 * _MASKED_TOKEN_END:
        return "*" * len(token)
    stars = "*" * _MASKED_TOKEN_END
    first, last = token[:_MASKED_TOKEN_END], token[-_MASKED_TOKEN_END:]
    return token.replace(last, stars).replace(first, stars)
