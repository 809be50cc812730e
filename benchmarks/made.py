"""Messages and rows as clients would make them, made in separate processes before the measurement."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from wakupush.devnet import messages
from wakupush.devnet.node.state import encoded_size
from wakupush.devnet.stack import SHARDS
from wakupush.model.waku_message import WakuMessage
from wakupush.pb.push_notification_pb2 import PushNotification, PushNotificationRegistration, PushNotificationRequest
from wakupush.protocol import topics
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey, PublicKey
from wakupush.protocol.request import delivery_key, parse_request
from wakupush.waku.codec import encode_message

SHARD = SHARDS[0]
#: Partitions of keys whose answers are waited for, and of others, so that answers to these come on other topics.
AWAITED, UNAWAITED = range(4000), range(4000, 5000)


@dataclass(frozen=True)
class User:
    """Whom pushes and queries are for."""

    key_hash: bytes
    installation_id: str
    access_token: str


@dataclass(frozen=True)
class Made:
    """A message, encoded for the node."""

    body: str
    hash: str
    #: Of its protobuf, as it travels.
    bytes: int
    #: Of the push that is asked for: gorush's notif_id without the attempt.
    delivery_key: str = ""
    #: The content topic of the answer, if it is waited for.
    answered_on: str = ""

    @classmethod
    def of(cls, message: WakuMessage, delivery_key: bytes = b"", answered_on: str = "") -> Made:
        body, digest = json.dumps(encode_message(message)), message_hash(SHARD, message).hex()
        return cls(body, digest, encoded_size(message), delivery_key.hex(), answered_on)


def key(partitions: range) -> PrivateKey:
    """Return a new key of one of these partitions."""
    while (private_key := PrivateKey.generate()).public_key.partition not in partitions:
        pass
    return private_key


def registration(server: bytes, _: int, script: str = "") -> tuple[Made, User]:
    """Return a registration and who registers; `script` begins the device token."""
    client = PrivateKey.generate()
    content = messages.registration(client, PublicKey(server), device_token=script + secrets.token_hex(32))
    user = User(client.public_key.key_hash, content.installation_id, content.access_token)
    return Made.of(messages.register(client, PublicKey(server), content)), user


def topic_key(user: User) -> tuple[bytes, bytes]:
    """Return the key of a user's query topic, which the schedule would derive in time, by the user's key hash."""
    return user.key_hash, topics.symmetric_key(topics.query_topics(user.key_hash)[0])


def query(*users: User) -> Made:
    return Made.of(messages.query(key(UNAWAITED), *(user.key_hash for user in users)))


def request(server: bytes, *users: User, size: int = 64) -> Made:
    """Return a request of a notification to each user, with so many bytes of message; the first push is its effect."""
    notifications = [item(user, message=os.urandom(size)) for user in users]
    message_id = os.urandom(32)
    inner = PushNotificationRequest(requests=notifications, message_id=message_id).SerializeToString()
    message = messages.request(key(UNAWAITED), PublicKey(server), notifications, message_id)
    return Made.of(message, delivery_key(message_id, parse_request(inner, most_items=len(notifications)).items[0]))


def item(user: User, **fields: object) -> PushNotification:
    """Return an item of a request to a user; `fields` replace its fields."""
    registered = PushNotificationRegistration(access_token=user.access_token, installation_id=user.installation_id)
    return messages.notification(user.key_hash, registered, **fields)


def turn(users: Sequence[User], count: int, first: int) -> Iterator[User]:
    """Return so many users from one on; after the last one comes the first."""
    begin = first % len(users)
    return islice(cycle(users), begin, begin + count)


def garbage(server: bytes, _: int) -> Made:
    """Return a message on the server's topic that is sealed to another key."""
    ours = messages.to_server(PrivateKey.generate(), PublicKey(server), 20, b"")
    theirs = messages.to_server(PrivateKey.generate(), PrivateKey.generate().public_key, 20, os.urandom(200))
    return Made.of(WakuMessage(payload=theirs.payload, content_topic=ours.content_topic, timestamp=time.time_ns()))
