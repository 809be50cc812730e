"""The texts that a device shows, and the data that its app reads, in each dialect."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, Literal

from wakupush.model.deliveries import Delivery
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Target

Dialect = Literal["spec", "status", "status-2024", "both"]
Data = dict[str, str | list[str]]

#: Both platforms take 4 KB in all. Above this many bytes of data the notification is sent without the message.
MOST_DATA_BYTES = 3584


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The fields that a dialect sends."""

    #: The texts that devices show, by type; the server knows no more about a notification.
    texts: Mapping[NotificationType, str]
    #: Of `data`.
    data_keys: tuple[str, ...]
    #: gorush's further fields, for iOS only.
    ios_fields: Mapping[str, str | bool] = field(default_factory=dict)
    #: `deepLink` in the data for iOS, by the type: where the app opens. Empty for none.
    deep_links: Mapping[NotificationType, str] = field(default_factory=dict)


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
_SPEC_KEYS: Final = ("chat_id", "message", "installation_ids")
_STATUS_KEYS: Final = ("encryptedMessage", "chatId", "publicKey")
_STATUS: Final = Profile(
    texts=_TEXTS_2026,
    data_keys=_STATUS_KEYS,
    # Without content_available the app does not wake, and fetches nothing before it is opened.
    ios_fields={"content_available": True, "sound": "default", "priority": "high", "push_type": "alert"},
    deep_links={
        _MESSAGE: "status-app://chats",
        _MENTION: "status-app://ac",
        _JOIN: "status-app://ac",
        _CONTACT: "status-app://contact-requests",
    },
)
#: 71 has data, but no texts: `spec` has those of 2024, and that of 2026 for what did not exist before.
PROFILES: Final[Mapping[Dialect, Profile]] = MappingProxyType(
    {
        "spec": Profile(texts=_TEXTS_2024 | {_CONTACT: _TEXTS_2026[_CONTACT]}, data_keys=_SPEC_KEYS),
        "status": _STATUS,
        "status-2024": Profile(texts=_TEXTS_2024, data_keys=_STATUS_KEYS),
        "both": replace(_STATUS, data_keys=_STATUS_KEYS + _SPEC_KEYS),
    }
)


def fitting(dialect: Dialect, delivery: Delivery, target: Target) -> bytes:
    """Return the message of a delivery if it fits into a notification; empty if not.

    It does not if the data would be above `MOST_DATA_BYTES`.
    """
    # Hex takes two characters a byte, so most messages that are too large need not be encoded to find out.
    too_large = 2 * len(delivery.message) > MOST_DATA_BYTES or (
        len(json.dumps(_data(dialect, delivery, target, delivery.message))) > MOST_DATA_BYTES
    )
    return b"" if too_large else delivery.message


def data(dialect: Dialect, delivery: Delivery, target: Target) -> Data:
    """Return gorush's `data` of a notification: hex texts with ``0x``, just ``0x`` where empty.

    Args:
        dialect: `spec` (71, Handle Notification Request), `status` (what Status clients read), `status-2024` (what
            status-go sent until 2026), or `both` (`spec` and `status`).
        delivery: the notification; its message is left out if it is not `fitting`.
    """
    return _data(dialect, delivery, target, fitting(dialect, delivery, target))


def _data(dialect: Dialect, delivery: Delivery, target: Target, message: bytes) -> Data:
    whole: Data = {
        "encryptedMessage": _hex(message),
        "chatId": _hex(delivery.chat_id),
        "publicKey": _hex(delivery.installation.key_hash),
        "chat_id": _hex(delivery.chat_id),
        "message": _hex(message),
        "installation_ids": [target.installation_id],
    }
    profile = PROFILES[dialect]
    fields = {key: whole[key] for key in profile.data_keys}
    link = profile.deep_links.get(delivery.notification_type) if target.platform is Platform.IOS else None
    return fields | {"deepLink": link} if link else fields


def _hex(value: bytes) -> str:
    return "0x" + value.hex()
