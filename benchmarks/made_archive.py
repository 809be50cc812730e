"""An archive as clients would fill it. Beside `rebuild.py`, so that Spark can send it to its workers by name."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from wakupush.devnet import messages
from wakupush.devnet.stack import SHARDS
from wakupush.model.waku_message import WakuMessage
from wakupush.pipeline.archive.files import HOUR, SCHEMA
from wakupush.protocol import envelopes
from wakupush.protocol.application import Type
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import seal_registration
from wakupush.runtime import keyfile

SHARD = SHARDS[0]
#: The first hour, and how many hours the messages spread over.
START, HOURS = 1_790_000_000 * 10**9 // HOUR * HOUR, 200


def rows(key_file: str, users: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make the messages with these numbers."""
    server = keyfile.read(Path(key_file), PrivateKey.from_hex)
    for batch in batches:
        batch_messages = [message(server, users, number) for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pylist(
            [{"hash": message_hash(SHARD, each), "pubsub_topic": SHARD, **asdict(each)} for each in batch_messages],
            SCHEMA,
        )


def message(server: PrivateKey, users: int, number: int) -> WakuMessage:
    """Make a message. Its ephemeral keys make its ciphertext different each time; its content is the same."""
    chance = random.Random(number)
    at = START + chance.randrange(HOURS * HOUR)
    user = chance.randrange(users)
    client = PrivateKey(hashlib.sha256(f"{user}".encode()).digest())
    to, kind = server.public_key, Type.PUSH_NOTIFICATION_REGISTRATION
    luck = chance.random()
    if luck < 0.3:
        kind, inner = Type.PUSH_NOTIFICATION_REQUEST, chance.randbytes(300)
    else:
        fields: dict[str, object] = {
            "installation_id": str(uuid.UUID(int=user * 2 + chance.randrange(2))),
            "access_token": str(uuid.UUID(int=user)),
            "version": chance.randint(1, 8),
            "unregister": chance.random() < 0.02,
            "device_token": chance.randbytes(32).hex(),
            "blocked_chat_list": [chance.randbytes(64) for _ in range(chance.randrange(3))],
        }
        if luck < 0.35:
            fields["grant"] = chance.randbytes(64) + b"\0"
        inner = seal_registration(messages.registration(client, to, **fields), client, to)
    [envelope] = envelopes.to_key(client, to, kind, inner, timestamp=at)
    if 0.35 <= luck < 0.4:
        [other] = envelopes.to_key(client, client.public_key, kind, inner, timestamp=at)
        envelope = WakuMessage(payload=other.payload, content_topic=envelope.content_topic, timestamp=at)
    return envelope
