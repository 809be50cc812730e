"""The notifications that gorush gets: what a profile shows and sends, and what is left out so that they fit."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from wakupush.model.deliveries import Delivery
from wakupush.model.notifications import Notification, NotificationType, notif_id
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Target
from wakupush.protocol.identity import Identity

Data = dict[str, str | list[str]]

#: Both platforms take 4 KB of texts, fields and data in all; of data alone, no profile sends more than the second.
MOST_PAYLOAD_BYTES: Final = 4096
MOST_DATA_BYTES: Final = 3584
#: Bytes of a payload for a thread id and a time to live, and for gorush's other names of things, at most.
_OTHER_BYTES: Final = 192
#: Firebase keeps a message for four weeks at most, in seconds.
_MOST_TTL: Final = 28 * 86_400
_to_json = json.JSONEncoder(ensure_ascii=False).encode


def _json_bytes(value: object) -> int:
    """Return the bytes of JSON, of which Go escapes more characters: at least as many as gorush sends."""
    text = _to_json(value)
    return len(text.encode()) + 5 * sum(map(text.count, "<>&\u2028\u2029"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What notifications of a type have in common on a platform."""

    #: The text that the device shows. Empty if it shows none, or has it under a key.
    text: str
    #: gorush's further fields, and `deepLink` in the data: where the app opens, empty for none.
    fields: Mapping[str, Any] = field(default_factory=dict)
    deep_link: str = ""
    #: Whether the device shows the notifications of a chat together.
    has_thread_id: bool = False
    #: Whether the platform drops the notification when the delivery expires.
    expires: bool = False
    #: Bytes of JSON that the data may have. If they are more without the message, the platform decides.
    room: int = field(init=False)

    def __post_init__(self) -> None:
        rest = _json_bytes({"message": self.text, **self.fields}) + _OTHER_BYTES
        object.__setattr__(self, "room", min(MOST_DATA_BYTES, MOST_PAYLOAD_BYTES - rest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What an app expects of its notifications."""

    #: Of `data`: some of `DATA_KEYS`.
    data_keys: tuple[str, ...]
    #: For each type on each platform.
    contents: Mapping[tuple[NotificationType, Platform], Content]


_MESSAGE, _MENTION, _JOIN, _CONTACT = NotificationType
_TEXTS_2026: Final = {
    _MESSAGE: "New message in Messenger",
    _MENTION: "New mention or reply in Communities",
    _JOIN: "Someone requested to join a community you are an admin of",
    _CONTACT: "Someone sent you a contact request",
}
_TEXTS_2024: Final = {
    _MESSAGE: "You have a new message",
    _MENTION: "Someone mentioned you",
    _JOIN: _TEXTS_2026[_JOIN],
    # status-go knew no contact requests, and took them for mentions.
    _CONTACT: "Someone mentioned you",
}
# Without content_available the app does not wake, and fetches nothing before it is opened.
_FIELDS_2026: Final = {"content_available": True, "sound": "default", "priority": "high", "push_type": "alert"}
_LINKS_2026: Final = {
    _MESSAGE: "status-app://chats",
    _MENTION: "status-app://ac",
    _JOIN: "status-app://ac",
    _CONTACT: "status-app://contact-requests",
}
_SPEC_KEYS: Final = ("chat_id", "message", "installation_ids")
_STATUS_KEYS: Final = ("encryptedMessage", "chatId", "publicKey")
#: All that `data` can have.
DATA_KEYS: Final = _SPEC_KEYS + _STATUS_KEYS


def _texts_alone(texts: Mapping[NotificationType, str]) -> dict[tuple[NotificationType, Platform], Content]:
    return {(kind, platform): Content(text=text) for kind, text in texts.items() for platform in Platform}


_STATUS: Final = Profile(
    data_keys=_STATUS_KEYS,
    contents=_texts_alone(_TEXTS_2026)
    | {
        (kind, Platform.IOS): Content(text=text, fields=_FIELDS_2026, deep_link=_LINKS_2026[kind])
        for kind, text in _TEXTS_2026.items()
    },
)
#: The specification's profile (71, Handle Notification Request), what Status clients expect, what status-go sent until
#: 2026, and the first two together. 71 has data, but no texts: `spec` has those of 2024, and that of 2026 for what did
#: not exist before.
PROFILES: Final[Mapping[str, Profile]] = MappingProxyType(
    {
        "spec": Profile(data_keys=_SPEC_KEYS, contents=_texts_alone(_TEXTS_2024 | {_CONTACT: _TEXTS_2026[_CONTACT]})),
        "status": _STATUS,
        "status-2024": Profile(data_keys=_STATUS_KEYS, contents=_texts_alone(_TEXTS_2024)),
        "both": replace(_STATUS, data_keys=_STATUS_KEYS + _SPEC_KEYS),
    }
)


def notification(profile: Profile, delivery: Delivery, target: Target, identity: Identity, now: float) -> Notification:
    """Return the notification that gorush gets for an attempt.

    Args:
        identity: makes thread ids.
        now: seconds since the epoch.
    """
    content = profile.contents[delivery.notification_type, target.platform]
    is_ios = target.platform is Platform.IOS
    fields = dict(content.fields)
    if content.has_thread_id:
        fields["thread-id"] = identity.thread_id(delivery.installation, delivery.chat_id)
    if content.expires and is_ios:
        fields["expiration"] = int(delivery.expires_at)
    elif content.expires:
        ttl = min(max(0, int(delivery.expires_at - now)), _MOST_TTL)
        fields["android"] = {**fields.get("android", {}), "ttl": f"{ttl}s"}
    return Notification(
        notif_id=notif_id(delivery.delivery_key, delivery.attempt, delivery.lease),
        token=target.device_token,
        platform=target.platform,
        message=content.text,
        topic=target.apn_topic if is_ios else "",
        data=data(profile, delivery, target),
        # A push whose outcome stayed unknown and that is posted again shows once.
        collapse_id=delivery.delivery_key.hex()[:32] if is_ios else "",
        fields=fields,
    )


def fitting(profile: Profile, delivery: Delivery, target: Target) -> bytes:
    """Return the message of a delivery if it fits into a notification; empty if not."""
    room = profile.contents[delivery.notification_type, target.platform].room
    # Hex takes two characters a byte, so most messages that are too large need not be encoded to find out.
    too_large = 2 * len(delivery.message) > room or (
        _json_bytes(_data(profile, delivery, target, delivery.message)) > room
    )
    return b"" if too_large else delivery.message


def data(profile: Profile, delivery: Delivery, target: Target) -> Data:
    """Return gorush's `data` of a notification: hex texts with ``0x``, just ``0x`` where empty.

    The message is left out if it is not `fitting`.
    """
    return _data(profile, delivery, target, fitting(profile, delivery, target))


def _data(profile: Profile, delivery: Delivery, target: Target, message: bytes) -> Data:
    whole: Data = {
        "encryptedMessage": _hex(message),
        "chatId": _hex(delivery.chat_id),
        "publicKey": _hex(delivery.installation.key_hash),
        "chat_id": _hex(delivery.chat_id),
        "message": _hex(message),
        "installation_ids": [target.installation_id],
    }
    fields = {key: whole[key] for key in profile.data_keys}
    link = profile.contents[delivery.notification_type, target.platform].deep_link
    return fields | {"deepLink": link} if link else fields


def _hex(value: bytes) -> str:
    return "0x" + value.hex()
