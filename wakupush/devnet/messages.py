"""Messages as clients send them, for the demo, tests and benchmarks."""

import secrets
import time
import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotification, PushNotificationRegistration, PushNotificationRequest
from wakupush.protocol import application, envelopes, topics
from wakupush.protocol.application import Type
from wakupush.protocol.grants import grant
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.query import encode_query
from wakupush.protocol.registration import seal_registration


def registration(client: PrivateKey, server: PublicKey, **fields: Any) -> PushNotificationRegistration:
    """Return a registration of an iOS device that every check passes; `fields` replace its fields."""
    access_token = fields.pop("access_token", str(uuid.uuid4()))
    return PushNotificationRegistration(
        **{
            "token_type": PushNotificationRegistration.APN_TOKEN,
            "device_token": secrets.token_hex(32),
            "installation_id": str(uuid.uuid4()),
            "access_token": access_token,
            "enabled": True,
            "version": 1,
            "grant": grant(client, server, access_token),
            "apn_topic": "im.status.ethereum",
            **fields,
        }
    )


def register(client: PrivateKey, server: PublicKey, content: PushNotificationRegistration) -> WakuMessage:
    """Return the message that registers a client, on the server's partitioned topic, as the specification says."""
    ciphertext = seal_registration(content, client, server)
    return to_server(client, server, Type.PUSH_NOTIFICATION_REGISTRATION, ciphertext)


#: The key of a query topic, by its name; deriving one takes milliseconds.
query_key = lru_cache(maxsize=10_000)(topics.symmetric_key)


def query(asker: PrivateKey, key_hash: bytes, *others: bytes) -> WakuMessage:
    """Return a query for users (hashes of 64 bytes), on the query topic of the first."""
    name, _ = topics.query_topics(key_hash)
    metadata = application.wrap(Type.PUSH_NOTIFICATION_QUERY, encode_query([key_hash, *others]), asker)
    return envelopes.to_topic(asker, name, query_key(name), metadata, timestamp=time.time_ns())


def notification(
    key_hash: bytes, registration_message: PushNotificationRegistration, **fields: Any
) -> PushNotification:
    """Return an item of a request that the registration admits; `fields` replace its fields."""
    return PushNotification(
        **{
            "access_token": registration_message.access_token,
            "chat_id": secrets.token_bytes(64),
            "public_key": key_hash,
            "installation_id": registration_message.installation_id,
            "message": secrets.token_bytes(64),
            "type": PushNotification.MESSAGE,
            "author": secrets.token_bytes(64),
            **fields,
        }
    )


def request(
    sender: PrivateKey, server: PublicKey, items: Sequence[PushNotification], message_id: bytes | None = None
) -> WakuMessage:
    """Return a push request, on the server's partitioned topic."""
    message_id = secrets.token_bytes(32) if message_id is None else message_id
    inner = PushNotificationRequest(requests=items, message_id=message_id).SerializeToString()
    return to_server(sender, server, Type.PUSH_NOTIFICATION_REQUEST, inner)


def to_server(sender: PrivateKey, server: PublicKey, kind: Type.ValueType, inner: bytes) -> WakuMessage:
    """Return a message of any kind, signed at both layers, on the server's partitioned topic."""
    [message] = envelopes.to_key(sender, server, kind, inner, timestamp=time.time_ns())
    return message
