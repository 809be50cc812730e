"""Messages as strangers make them: each function returns one, which is made different from others by its number."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from secrets import token_bytes, token_hex

from benchmarks import made
from benchmarks.attack.traffic import Message
from benchmarks.attack.world import registered
from benchmarks.made import Made, User
from wakupush.devnet import messages
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotification, PushNotificationRequest
from wakupush.pb.segment_pb2 import SegmentMessage
from wakupush.protocol import application, envelopes, payload, topics
from wakupush.protocol.application import Type
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.query import encode_query
from wakupush.waku.codec import decode_message

SECOND = 10**9
#: The beginning of a payload to a key; without it no receiver tries to open the payload.
POINT = PrivateKey.generate().public_key.uncompressed
#: What the server does not need to find a device.
EMPTY = {"message": b"", "chat_id": b"", "author": b""}
#: A repeated field without anything in it, as protobuf.
EMPTY_ITEM = b"\x0a\x00"


def junk(topic: str, size: int, ahead: float, _: int) -> Message:
    """Return noise of so many bytes, stamped so many seconds ahead, which looks as if it were sealed if long enough."""
    noise = (POINT + token_bytes(size))[:size]
    return (Made.of(WakuMessage(payload=noise, content_topic=topic, timestamp=_now(ahead))),)


def junk_for(users: Sequence[User], size: int, number: int) -> Message:
    """Return noise on the query topic of a user, of each in turn."""
    name, _ = topics.query_topics(users[number % len(users)].key_hash)
    return junk(topics.content_topic(name), size, 0.0, number)


def sealed_noise(server: bytes, size: int, _: int) -> Message:
    """Return noise that is sealed to the server and signed."""
    sealed = payload.seal_asymmetric(token_bytes(size), PublicKey(server), made.key(made.UNAWAITED))
    return (Made.of(WakuMessage(payload=sealed, content_topic=_partitioned(server), timestamp=_now())),)


def unsealable(server: bytes, size: int, _: int) -> Message:
    """Return a registration that its sender did not seal."""
    return _to_server(server, Type.PUSH_NOTIFICATION_REGISTRATION, token_bytes(size))


def naming(server: bytes, users: Sequence[User], items: int, token: str | None, number: int) -> Message:
    """Return a request that names so many devices, with this access token or with each one's own."""
    fields = EMPTY if token is None else EMPTY | {"access_token": token}
    notifications = [made.item(user, **fields) for user in made.turn(users, items, number * items)]
    inner = PushNotificationRequest(requests=notifications, message_id=token_bytes(32)).SerializeToString()
    return _to_server(server, Type.PUSH_NOTIFICATION_REQUEST, inner)


def naming_nobody(server: bytes, items: int, _: int) -> Message:
    """Return a request of so many items that name no device, as small as possible; each is reported separately."""
    notifications = [PushNotification(type=PushNotification.MESSAGE)] * items
    inner = PushNotificationRequest(requests=notifications, message_id=token_bytes(32)).SerializeToString()
    return _to_server(server, Type.PUSH_NOTIFICATION_REQUEST, inner)


def empty_items(server: bytes, items: int, _: int) -> Message:
    """Return a request of items that hold nothing."""
    inner = PushNotificationRequest(message_id=token_bytes(32)).SerializeToString()
    return _to_server(server, Type.PUSH_NOTIFICATION_REQUEST, EMPTY_ITEM * items + inner)


def asking(user: User, others: int, _: int) -> Message:
    """Return a query for a user, and for others who do not exist."""
    message = messages.query(made.key(made.UNAWAITED), user.key_hash, *(token_bytes(64) for _ in range(others)))
    return (Made.of(message),)


def replay(user: User, asker: bytes, number: int) -> Message:
    """Return a query that was asked before, sealed anew: who knows the user has the topic's key."""
    name, _ = topics.query_topics(user.key_hash)
    metadata = application.wrap(Type.PUSH_NOTIFICATION_QUERY, encode_query([user.key_hash]), PrivateKey(asker))
    key = messages.query_key(name)
    message = envelopes.to_topic(made.key(made.UNAWAITED), name, key, metadata, timestamp=_now() + number)
    return (Made.of(message),)


def lonely_part(server: bytes, size: int, count: int, _: int) -> Message:
    """Return one of so many parts of a message of which no other comes."""
    part = SegmentMessage(
        entire_message_hash=token_bytes(32), index=0, segments_count=count, payload=token_bytes(size)
    ).SerializeToString()
    sealed = payload.seal_asymmetric(part, PublicKey(server), made.key(made.UNAWAITED))
    return (Made.of(WakuMessage(payload=sealed, content_topic=_partitioned(server), timestamp=_now())),)


def update(server: bytes, clients: Sequence[bytes], listed: int, number: int) -> Message:
    """Return another registration of a client, of each in turn, with a list that is another one too."""
    client = PrivateKey(clients[number % len(clients)])
    installation = str(uuid.UUID(bytes=client.public_key.key_hash[:16], version=4))
    lists = {"muted_chat_list": [token_bytes(64) for _ in range(listed)]}
    message, _ = registered(server, client, installation_id=installation, version=number + 1, **lists)
    return message


def newcomer(server: bytes, _: int) -> Message:
    """Return the registration of a new user."""
    message, _ = registered(server, made.key(made.UNAWAITED), device_token=token_hex(32))
    return message


def changed(message: Message, **fields: object) -> Message:
    """Return a copy of a message whose sender's seal was left as it is, and something outside of it changed."""
    return tuple(Made.of(replace(decode_message(json.loads(part.body)), **fields)) for part in message)


def _to_server(server: bytes, kind: Type.ValueType, inner: bytes) -> Message:
    parts = envelopes.to_key(made.key(made.UNAWAITED), PublicKey(server), kind, inner, timestamp=_now())
    return tuple(map(Made.of, parts))


def _partitioned(server: bytes) -> str:
    return topics.content_topic(topics.partitioned_topic(PublicKey(server)))


def _now(ahead: float = 0.0) -> int:
    return time.time_ns() + round(ahead * SECOND)
