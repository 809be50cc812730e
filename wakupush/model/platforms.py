"""The push platforms, and their numbers in registrations."""

from enum import IntEnum
from typing import NamedTuple

from wakupush.pb.push_notification_pb2 import PushNotificationRegistration


class Platform(IntEnum):
    """The service that reaches a device; its numbers are gorush's, and those of the token types."""

    IOS = 1
    ANDROID = 2

    @property
    def label(self) -> str:
        """The name in metrics, events, logs and gorush's answers: ``ios`` or ``android``."""
        return _LABELS[self]


class AppPlatform(NamedTuple):
    """An app on a platform: what has credentials, and so fails, apart from all others."""

    #: The name in the settings; empty for all apps of a server that does not tell them apart.
    app: str
    platform: Platform

    @property
    def labels(self) -> tuple[str, str]:
        """The names of app and platform in metrics."""
        return self.app, self.platform.label

    @property
    def title(self) -> str:
        """The names of app and platform for people; the platform alone on a server that does not tell apps apart."""
        return " ".join(filter(None, self.labels))


_LABELS = {platform: platform.name.lower() for platform in Platform}


class TokenType(IntEnum):
    """Whose device token a registration holds (71, PushNotificationRegistration)."""

    APN = PushNotificationRegistration.APN_TOKEN
    FIREBASE = PushNotificationRegistration.FIREBASE_TOKEN
