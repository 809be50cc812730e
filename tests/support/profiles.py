"""What profiles make of a notification."""

from dataclasses import replace

from support import deciding, rows
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Installation
from wakupush.protocol import notification

#: Keys that wakupush adds to those of the specification and the reference.
ADDED_KEYS = frozenset({"notif_id", "collapse_id"})
HASH, CHAT = b"\x0a" * 64, b"\x0b" * 64
#: A profile with every field that does not exclude another one.
EVERY = {
    "title": "Mine",
    "sound": "ping",
    "badge": True,
    "mutable_content": True,
    "content_available": True,
    "category": "chat",
    "thread_id": True,
    "channel": "chats",
    "priority": "normal",
    "expiration": True,
    "data": ["message", "chat_id", "installation_ids", "encryptedMessage", "chatId", "publicKey"],
    "deep_link": "mine://chats",
}


def data(profile, *, key_hash, installation_id, chat_id, message, kind=NotificationType.MESSAGE, platform=Platform.IOS):
    """Return gorush's data of a notification in a built-in profile."""
    delivery = rows.delivery(
        1,
        installation=Installation(key_hash, b"i" * 16),
        platform=platform,
        notification_type=kind,
        chat_id=chat_id,
        message=message,
    )
    profile = notification.PROFILES[profile]
    return notification.data(profile, delivery, replace(deciding.target(platform), installation_id=installation_id))


def posted(profile, platform, kind, *, now, message=b"\1", chat_id=CHAT, key_hash=HASH, expires_at=None):
    """Return what gorush gets."""
    delivery = rows.delivery(
        1,
        installation=Installation(key_hash, b"i" * 16),
        platform=platform,
        notification_type=kind,
        chat_id=chat_id,
        message=message,
        expires_at=now + 86_400 if expires_at is None else expires_at,
    )
    return notification.notification(profile, delivery, deciding.target(platform), deciding.IDENTITY, now).to_json()
