"""What the built-in profiles make of a notification."""

from dataclasses import replace

from support import deciding, rows
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Installation
from wakupush.protocol import notification


def data(profile, *, key_hash, installation_id, chat_id, message, kind=NotificationType.MESSAGE, platform=Platform.IOS):
    """Return gorush's data of a notification."""
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
