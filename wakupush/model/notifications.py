"""Notifications: their types, and the form in which gorush takes one for a device.

Source: 71, PushNotification; docs/reference/contracts/gorush.md, section 2.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any
from uuid import UUID

from wakupush.model.platforms import Platform
from wakupush.pb.push_notification_pb2 import PushNotification

#: Characters of a collapse id at most (APNs).
COLLAPSE_ID_LIMIT = 64
_NOTIF_ID = re.compile("([0-9a-f]{64})-([1-9][0-9]{0,3})(?:-([0-9a-f]{32}))?")


class NotificationType(IntEnum):
    """The types that are pushed."""

    MESSAGE = PushNotification.MESSAGE
    MENTION = PushNotification.MENTION
    REQUEST_TO_JOIN_COMMUNITY = PushNotification.REQUEST_TO_JOIN_COMMUNITY
    CONTACT_REQUEST = PushNotification.CONTACT_REQUEST

    @property
    def label(self) -> str:
        """The name in settings and commands: `message`, `mention`, `join_request` or `contact_request`."""
        return _LABELS[self]


_LABELS = {kind: kind.name.lower() for kind in NotificationType} | {
    NotificationType.REQUEST_TO_JOIN_COMMUNITY: "join_request"
}


def notif_id(delivery_key: bytes, attempt: int, lease: UUID) -> str:
    """Return the name of an attempt (from 1) for gorush, by which a late report is not taken for another one's.

    The number of an attempt comes again: after a probe that does not count, and when the delivery is taken up again.
    Its lease does not.
    """
    return f"{delivery_key.hex()}-{attempt}-{lease.hex}"


def read_notif_id(text: str) -> tuple[bytes, int, UUID | None] | None:
    """Return the delivery key (32 bytes), attempt and lease in a name that `notif_id` made; None for other text.

    Code of the previous release gave no lease.
    """
    match = _NOTIF_ID.fullmatch(text)
    return match and (bytes.fromhex(match[1]), int(match[2]), UUID(match[3]) if match[3] else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A notification for one device.

    One device only: gorush loses outcomes of several tokens in one notification.

    Raises:
        ValueError: no ``notif_id``, a collapse id that APNs would not take, or what is for iOS only with Firebase,
            where a topic would broadcast.
    """

    #: Ours, unique within a post: outcomes are matched by it.
    notif_id: str
    #: The device token; never shown.
    token: str = field(repr=False)
    platform: Platform
    #: The text that the device shows; empty for none.
    message: str
    #: The bundle id of the app. iOS only.
    topic: str = ""
    #: Handed to the app: texts, and lists of texts.
    data: Mapping[str, str | list[str]] = field(repr=False)
    #: Makes a device show a doubled notification once; at most 64 printable ASCII characters. iOS only.
    collapse_id: str = ""
    #: gorush's further fields, such as `sound`.
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.notif_id:
            raise ValueError("a notification needs a notif_id")
        if self.platform is not Platform.IOS and (self.topic or self.collapse_id):
            raise ValueError("topic and collapse_id are for iOS only")
        # It becomes an HTTP header.
        printable = self.collapse_id.isascii() and self.collapse_id.isprintable()
        if not printable or len(self.collapse_id) > COLLAPSE_ID_LIMIT:
            raise ValueError(f"a collapse_id has at most {COLLAPSE_ID_LIMIT} printable ASCII characters")

    @property
    def targets(self) -> int:
        """How many targets gorush counts for it: the token, and the topic even on iOS."""
        return 2 if self.topic else 1

    def to_json(self) -> dict[str, Any]:
        """Return the object for the ``notifications`` array of a post. It holds the device token."""
        notification: dict[str, Any] = {
            "notif_id": self.notif_id,
            "tokens": [self.token],
            "platform": self.platform.value,
            "data": dict(self.data),
            **self.fields,
        }
        if self.message:
            notification["message"] = self.message
        if self.topic:
            notification["topic"] = self.topic
        if self.collapse_id:
            notification["collapse_id"] = self.collapse_id
        return notification
