"""Record what a real gorush makes of each field that a profile can send: tests/recordings/gorush-fields.

PYTHONPATH=tests WAKUPUSH_TEST_GORUSH=/opt/gorush/gorush .venv/bin/python -m contract.gorush.record
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from support.real_gorush import connected

RECORDINGS = Path(__file__).parents[2] / "recordings" / "gorush-fields"
IOS = {"notif_id": "i", "platform": 1, "tokens": ["ab" * 32], "topic": "im.app", "message": "m", "data": {"k": "v"}}
ANDROID = {"notif_id": "a", "platform": 2, "tokens": ["t"], "message": "m", "data": {"k": "v"}}
STRANGE = 'é 😀 "<b>&\u2028\n'
ALERT = {"loc-key": "K", "loc-args": ["A"], "title-loc-key": "TK", "title-loc-args": ["TA"]}
TEXTS = {"body_loc_key": "K", "body_loc_args": ["A"], "title_loc_key": "TK", "title_loc_args": ["TA"]}


def _both(**fields: Any) -> list[dict[str, Any]]:
    return [IOS | fields, ANDROID | fields]


def _ios(**fields: Any) -> list[dict[str, Any]]:
    return [IOS | fields]


def _android(**fields: Any) -> list[dict[str, Any]]:
    return [ANDROID | fields]


def _without(field: str, notifications: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in each.items() if name != field} for each in notifications]


#: By the name of the recording: the notifications of a post.
POSTS = {
    "none": _both(),
    "title": _both(title="t"),
    "title-alone": _without("message", _both(title="t")),
    "no-text": _without("message", _both()),
    "strange-text": _both(title=STRANGE, message=STRANGE, data={"k": STRANGE, "l": ["<"]}),
    "sound": _both(sound="default"),
    "badge": _both(badge=1),
    "badge-zero": _both(badge=0),
    "badge-negative": _both(badge=-1),
    "mutable_content": _both(mutable_content=True),
    "content_available": _both(content_available=True),
    "category": _both(category="c"),
    "thread-id": _both(**{"thread-id": "0a0b"}),
    "priority-high": _both(priority="high"),
    "priority-normal": _both(priority="normal"),
    "priority-unknown": _both(priority="urgent"),
    "push_type-unknown": _both(push_type="urgent"),
    "expiration": _both(expiration=1_900_000_000),
    "expiration-zero": _both(expiration=0),
    "expiration-past": _both(expiration=1),
    "expiration-negative": _both(expiration=-1),
    "background": _without("message", _both(content_available=True, push_type="background", priority="normal")),
    "background-high": _without("message", _both(content_available=True, push_type="background", priority="high")),
    "alert": _without("message", _both(alert=ALERT)),
    "alert-body": _without("message", _both(alert={"body": "b", "title-loc-key": "TK"})),
    "alert-title": _without("message", _both(alert={"title": "t", "loc-key": "K"})),
    "alert-message": _both(alert={"loc-key": "K"}),
    "alert-args-alone": _without("message", _both(alert={"loc-args": ["A"]})),
    "android-texts": _without("message", _both(android={"notification": TEXTS})),
    "android-title-key": _both(android={"notification": {"title_loc_key": "TK"}}),
    "android-channel": _both(android={"notification": {"channel_id": "c"}}),
    "android-sound": _both(sound="s", android={"notification": {"channel_id": "c"}}),
    "android-own-sound": _android(android={"notification": {"sound": "s"}}),
    "android-priority": _android(android={"priority": "high"}),
    "android-priorities": _android(priority="high", android={"ttl": "60s"}),
    "android-priority-unknown": _android(android={"priority": "urgent"}),
    "android-ttl": _android(android={"ttl": "2419200s"}),
    "android-ttl-zero": _android(android={"ttl": "0s"}),
    "android-ttl-bare": _android(android={"ttl": "60"}),
    "android-ttl-negative": _android(android={"ttl": "-1s"}),
    "android-data-only": _without("message", _android(priority="high", android={"ttl": "60s"})),
    "android-args-alone": _android(android={"notification": {"body_loc_args": ["A"]}}),
    "android-title-args-alone": _android(android={"notification": {"title_loc_args": ["A"]}}),
    "android-unknown": _android(android={"x": 1, "notification": {"y": 1}}),
    "ios-all": _without(
        "message",
        _ios(
            alert=ALERT,
            sound="default",
            badge=1,
            mutable_content=True,
            content_available=True,
            category="c",
            priority="high",
            expiration=1_900_000_000,
            **{"thread-id": "0a0b"},
        ),
    ),
    "android-all": _without(
        "message",
        _android(priority="high", android={"ttl": "60s", "notification": TEXTS | {"channel_id": "c", "sound": "s"}}),
    ),
    "no-data": _without("data", _both()),
    "empty-data": _both(data={}),
    # Go's types.
    "type-message": _both(message=1),
    "type-title": _both(title=1),
    "type-sound": _both(sound=1),
    "type-badge": _both(badge="1"),
    "type-badge-fraction": _both(badge=1.5),
    "type-mutable_content": _both(mutable_content="true"),
    "type-content_available": _both(content_available=1),
    "type-category": _both(category=1),
    "type-thread-id": _both(**{"thread-id": 1}),
    "type-priority": _both(priority=10),
    "type-push_type": _both(push_type=1),
    "type-expiration": _both(expiration="1900000000"),
    "type-expiration-fraction": _both(expiration=1.5),
    "type-alert": _both(alert="a"),
    "type-alert-key": _both(alert={"loc-key": 1}),
    "type-alert-args": _both(alert={"loc-args": "A"}),
    "type-alert-args-item": _both(alert={"title-loc-args": [1]}),
    "type-android": _ios(android="a"),
    "type-android-ttl": _ios(android={"ttl": 60}),
    "type-android-ttl-text": _ios(android={"ttl": "soon"}),
    "type-android-priority": _ios(android={"priority": 1}),
    "type-android-notification": _ios(android={"notification": "n"}),
    "type-android-channel": _ios(android={"notification": {"channel_id": 1}}),
    "type-android-args": _ios(android={"notification": {"body_loc_args": "A"}}),
    "type-data": _both(data="d"),
    "null": _both(**dict.fromkeys(("sound", "badge", "alert", "android", "expiration", "thread-id", "category"))),
}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, connected(Path(directory)) as post:
        for name, notifications in POSTS.items():
            body = {"notifications": notifications}
            answer, upstream = post(body)
            recording = {
                "request": {
                    "method": "POST",
                    "path": "/api/push",
                    "headers": {"Content-Type": "application/json"},
                    "body": body,
                },
                "response": {
                    "status": answer.status_code,
                    "headers": {"Content-Type": answer.headers["Content-Type"]},
                    "body": answer.json(),
                },
                "upstream": upstream,
                "note": "gorush 1.22.0, sync=true, hide_token=true, stand-ins for Apple and Google deliver everything",
            }
            text = json.dumps(recording, indent=1, ensure_ascii=True)
            (RECORDINGS / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
