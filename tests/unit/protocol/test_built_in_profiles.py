"""The notification that gorush gets for a delivery: every key, of each built-in profile, type and platform."""

from itertools import product

import pytest

from support import deciding, profiles
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.protocol.notification import PROFILES

MESSAGE, MENTION, JOIN, CONTACT = NotificationType
PHONE = deciding.target().installation_id
STATUS = {"encryptedMessage": "0x0102", "chatId": "0x" + "0b" * 64, "publicKey": "0x" + "0a" * 64}
SPEC = {"chat_id": "0x" + "0b" * 64, "message": "0x0102", "installation_ids": [PHONE]}
DATA = {"spec": SPEC, "status": STATUS, "status-2024": STATUS, "both": STATUS | SPEC}
TEXTS_2024 = {
    MESSAGE: "You have a new message",
    MENTION: "Someone mentioned you",
    JOIN: "Someone requested to join a community you are an admin of",
    CONTACT: "Someone mentioned you",
}
TEXTS_2026 = {
    MESSAGE: "New message in Messenger",
    MENTION: "New mention or reply in Communities",
    JOIN: "Someone requested to join a community you are an admin of",
    CONTACT: "Someone sent you a contact request",
}
TEXTS = {
    "spec": TEXTS_2024 | {CONTACT: TEXTS_2026[CONTACT]},
    "status": TEXTS_2026,
    "status-2024": TEXTS_2024,
    "both": TEXTS_2026,
}
LINKS = {
    MESSAGE: "status-app://chats",
    MENTION: "status-app://ac",
    JOIN: "status-app://ac",
    CONTACT: "status-app://contact-requests",
}


def posted(profile, kind, platform):
    return profiles.posted(PROFILES[profile], platform, kind, now=deciding.NOW, message=b"\1\2")


#: Profiles that wake an app on iOS.
WAKING = {"status", "both"}
WAKES = {"content_available": True, "sound": "default", "priority": "high", "push_type": "alert"}


@pytest.mark.parametrize(("profile", "kind"), list(product(DATA, NotificationType)))
def test_every_key_of_a_notification(profile, kind):
    common = {"notif_id": "00" * 31 + "01-1-" + "00" * 15 + "01", "tokens": ["token"], "message": TEXTS[profile][kind]}
    assert posted(profile, kind, Platform.ANDROID) == common | {"platform": 2, "data": DATA[profile]}
    is_waking = profile in WAKING
    link = {"deepLink": LINKS[kind]} if is_waking else {}
    ios = common | {"platform": 1, "topic": "app", "collapse_id": "00" * 16, "data": DATA[profile] | link}
    assert posted(profile, kind, Platform.IOS) == ios | (WAKES if is_waking else {})
