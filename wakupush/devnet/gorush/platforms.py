"""What gorush makes of a notification for Apple and for Google, as recorded of gorush 1.22."""

import json
from collections.abc import Mapping
from typing import Any

#: What Go's decoder insists on, at any depth; null and unknown keys pass.
_TEXTS = [str]
_TYPES: dict[str, Any] = {
    "tokens": _TEXTS,
    "platform": int,
    "data": {},
    **dict.fromkeys(("message", "title", "topic", "notif_id", "priority", "push_type", "collapse_id", "image"), str),
    **dict.fromkeys(("category", "thread-id"), str),
    **dict.fromkeys(("retry", "badge", "expiration"), int),
    **dict.fromkeys(("content_available", "mutable_content", "production", "development"), bool),
    "alert": {
        **dict.fromkeys(("title", "body", "loc-key", "title-loc-key"), str),
        **dict.fromkeys(("loc-args", "title-loc-args"), _TEXTS),
    },
    "android": {
        **dict.fromkeys(("ttl", "priority"), str),
        "notification": {
            **dict.fromkeys(("sound", "body_loc_key", "title_loc_key", "channel_id"), str),
            **dict.fromkeys(("body_loc_args", "title_loc_args"), _TEXTS),
        },
    },
}
_PRIORITIES = {"high": "10", "normal": "5"}


class RefusedByFirebaseError(ValueError):
    """Firebase's library refuses the whole notification, which gorush's answer does not say."""


def check(notification: Any) -> dict[str, Any]:
    """Return a notification whose keys have the types that Go insists on.

    Raises:
        TypeError: they have not.
        ValueError: a ttl is no duration.
    """
    if notification is None:
        return {}
    _check(notification, _TYPES, "notification")
    checked: dict[str, Any] = notification
    if ttl := (checked.get("android") or {}).get("ttl"):
        _seconds(ttl)
    return checked


def _check(value: Any, types: Any, name: str) -> None:
    if value is None:
        return
    if isinstance(types, dict) and isinstance(value, dict):
        for key, inner in types.items():
            _check(value.get(key), inner, key)
    elif isinstance(types, list) and isinstance(value, list):
        if not all(type(item) in types for item in value):
            raise TypeError(f"{name} has items of another type")
    elif type(value) is not types:
        raise TypeError(f"{name} has another type")


def apple(notification: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the headers, named ``apns-…``, and the payload of a push through APNs."""
    message, title = notification.get("message"), notification.get("title")
    own = notification.get("alert") or {}
    alert: Any = {key: own[key] for key in _TYPES["alert"] if own.get(key)}
    if title:
        alert = {"title": title, **({"body": message} if message else {}), **alert}
    # A text alone gives way to any other part of an alert.
    alert = alert or message
    badge = notification.get("badge")
    aps = {
        "alert": alert,
        "category": notification.get("category"),
        "content-available": int(bool(notification.get("content_available"))),
        "mutable-content": int(bool(notification.get("mutable_content"))),
        "sound": notification["sound"] if isinstance(notification.get("sound"), str) else None,
        "thread-id": notification.get("thread-id"),
    }
    expiration = notification.get("expiration") or 0
    headers = {
        "apns-topic": notification.get("topic"),
        "apns-collapse-id": notification.get("collapse_id"),
        "apns-priority": _PRIORITIES.get(notification.get("priority") or ""),
        "apns-expiration": str(expiration) if expiration > 0 else None,
        "apns-push-type": notification.get("push_type") or "alert",
    }
    payload: dict[str, Any] = {"aps": {key: value for key, value in aps.items() if value}}
    if badge is not None and badge >= 0:
        payload["aps"]["badge"] = badge
    return {key: value for key, value in headers.items() if value}, payload | (notification.get("data") or {})


def google(notification: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message of a push through Firebase, without its token.

    Raises:
        RefusedByFirebaseError: the library sends no such message.
    """
    texts = {"title": notification.get("title"), "body": notification.get("message")}
    data = {
        key: value if isinstance(value, str) else encode(value)
        for key, value in (notification.get("data") or {}).items()
    }
    message = {
        "data": data,
        "notification": {key: text for key, text in texts.items() if text},
        "android": _android(notification),
        "apns": _apns(notification),
    }
    return {key: value for key, value in message.items() if value}


def encode(value: Any) -> str:
    """Return JSON as Go writes it to the platforms."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _android(notification: Mapping[str, Any]) -> dict[str, Any] | None:
    fields, sound, priority = notification.get("android"), notification.get("sound"), notification.get("priority")
    android: dict[str, Any] | None = None
    if fields is not None:
        android = {key: fields[key] for key in _TYPES["android"] if fields.get(key) is not None}
        if "notification" in android:
            content = android["notification"]
            android["notification"] = {
                key: content[key] for key in _TYPES["android"]["notification"] if content.get(key)
            }
        if "ttl" in android:
            android["ttl"] = f"{_seconds(android['ttl'])}s"
    elif isinstance(sound, str):
        android = {"notification": {"sound": sound}}
    if priority:
        android = {"priority": priority} | (android or {})
    _judge(android or {})
    return android


def _judge(android: Mapping[str, Any]) -> None:
    content = android.get("notification", {})
    if android.get("ttl", "").startswith("-"):
        raise RefusedByFirebaseError("ttl duration must not be negative")
    if android.get("priority", "high") not in _PRIORITIES:
        raise RefusedByFirebaseError("priority must be 'normal' or 'high'")
    for part, name in (("title", "titleLoc"), ("body", "bodyLoc")):
        if content.get(f"{part}_loc_args") and not content.get(f"{part}_loc_key"):
            raise RefusedByFirebaseError(f"{name}Key is required when specifying {name}Args")


def _apns(notification: Mapping[str, Any]) -> dict[str, Any]:
    """Return what iOS devices with a token of Firebase would get."""
    apns: dict[str, Any] = {}
    aps: dict[str, Any] = {}
    if notification.get("mutable_content") and (notification.get("title") or notification.get("message")):
        aps = {"mutable-content": 1}
    if notification.get("content_available"):
        apns, aps = {"headers": {"apns-priority": "5"}}, {"content-available": 1, **(notification.get("data") or {})}
    if isinstance(notification.get("sound"), str):
        aps["sound"] = notification["sound"]
    return {**apns, "payload": {"aps": aps}} if aps else {}


def _seconds(ttl: str) -> int:
    return int(ttl.removesuffix("s").partition(".")[0])
