"""Rows as the server writes them, of made-up devices and messages."""

from datetime import UTC, datetime
from uuid import UUID

from wakupush.model.deliveries import Delivery
from wakupush.model.entries import Entry
from wakupush.model.notifications import NotificationType
from wakupush.model.platforms import AppPlatform, Platform, TokenType
from wakupush.model.registrations import Change, Installation, Registration
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres import (
    deliveries,
    requests,
)
from wakupush.protocol.identity import Identity
from wakupush.protocol.keys import PrivateKey

#: The platforms of a server that does not tell apps apart.
IOS, ANDROID = (AppPlatform("", platform) for platform in Platform)
ALICE = Installation(b"a" * 64, b"1" * 16)
AT_REST = Identity.of(PrivateKey(b"\1" * 32)).at_rest
NOW = datetime.now(UTC)


def registration(version: int, **fields) -> Registration:
    return Registration(
        **{
            "installation_id": "phone",
            "version": version,
            "token_type": TokenType.APN,
            "device_token": f"token-{version}",
            "access_token": "access",
            "grant": b"g" * 65,
            "enabled": True,
            "apn_topic": "app",
            "allow_from_contacts_only": False,
            "block_mentions": False,
            "allowed_key_list": (b"key", b""),
            "blocked_chat_list": (),
            "muted_chat_list": (b"m" * 64,),
            "allowed_mentions_chat_list": (),
            **fields,
        }
    )


def change(version: int, installation=ALICE, **fields) -> Change:
    return Change(installation, version.to_bytes(16, "big"), registration(version, **fields))


def delivery(number: int, **fields) -> Delivery:
    return Delivery(
        **{
            "delivery_key": number.to_bytes(32, "big"),
            "installation": ALICE,
            "platform": Platform.IOS,
            "notification_type": NotificationType.MESSAGE,
            "chat_id": b"chat",
            "message": b"message",
            "attempt": 1,
            "lease": UUID(int=number),
            "task_id": f"task-{number}",
            "trace_id": f"trace-{number}",
            "seen": NOW.timestamp(),
            "expires_at": NOW.timestamp() + 86_400,
            **fields,
        }
    )


def take_on(connection, new_deliveries, succeeded, lease=60):
    options = {"lease": lease, "at_rest": AT_REST}
    return requests.take_on(connection, new_deliveries, succeeded, **options)


def take(connection, attempts_begun):
    return deliveries.take(connection, attempts_begun, seconds=60, at_rest=AT_REST)


def entry(number: int, timestamp: int = 0) -> Entry:
    message = WakuMessage(payload=b"\x00payload", content_topic="/waku/1/0x00000000/rfc26", timestamp=timestamp)
    return Entry("/waku/2/rs/16/32", number.to_bytes(32, "big"), NOW.timestamp(), message)
