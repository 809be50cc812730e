"""Time and memory of rebuilding: ``python -m benchmarks.rebuild MESSAGES`` measures a tenth of them, then all.

An archive is made up by Spark, the same users, devices and versions each time. Of a hundred messages,
sixty are registrations (some older than those before, repeated, or of devices that go), thirty push requests, five
sealed to others, five refused for their grant. Commands run as an operator runs them, start of Java included.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import psycopg
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from benchmarks.commands import measured
from pipeline.archive.files import HOUR, SCHEMA, Archive
from pipeline.session import spark_session
from wakupush.devnet.demo import messages
from wakupush.devnet.demo.stack import SHARDS
from wakupush.devnet.parts.postgres import temporary_postgres
from wakupush.model.waku_message import WakuMessage
from wakupush.postgres.migrations import runner
from wakupush.protocol import envelopes
from wakupush.protocol.application import Type
from wakupush.protocol.hashing import message_hash
from wakupush.protocol.keys import PrivateKey
from wakupush.protocol.registration import seal_registration
from wakupush.runtime import keyfile
from wakupush.runtime.settings import PipelineSettings

#: Messages of one user, about.
OF_A_USER = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("messages", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wakupush-rebuild-") as name:
        folder = Path(name)
        key_file = folder / "identity.key"
        keyfile.write(key_file, PrivateKey.generate().secret)
        sizes = (options.messages // 10, options.messages)
        for size in sizes:
            make(folder / str(size), key_file, size)
        for size in sizes:
            rebuild(folder / str(size), key_file)


def make(folder: Path, key_file: Path, count: int) -> None:
    """Make an archive, in parts."""
    server = keyfile.read(key_file, PrivateKey).public_key
    target = Archive.of(PipelineSettings(archive=folder), server).folder
    begin = time.perf_counter()
    with spark_session(PipelineSettings(master="local[2]")) as spark:
        for first in range(0, count, 50_000):
            part = target / f"part{first:09}"
            ids = spark.range(first, min(count, first + 50_000), numPartitions=2)
            made = ids.mapInArrow(partial(rows, str(key_file), count // OF_A_USER), from_arrow_schema(SCHEMA))
            made.write.mode("overwrite").option("compression", "zstd").parquet(str(part))
            print(f"  {part.name} after {time.perf_counter() - begin:.0f} s", flush=True)
    size = sum(path.stat().st_size for path in target.glob("*/*.parquet"))
    print(f"{count} messages, {size / 1e6:.0f} MB of Parquet", flush=True)


def rebuild(folder: Path, key_file: Path) -> None:
    """Rebuild an archive into an empty database, and then again, when there is nothing to be stored."""
    with temporary_postgres() as postgres:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            runner.migrate(connection)
        environment = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "WAKUPUSH_IDENTITY_KEY_FILE": str(key_file),
            "WAKUPUSH_PIPELINE__MASTER": "local[2]",
            "WAKUPUSH_POSTGRES__DSN": postgres.dsn,
            "WAKUPUSH_PIPELINE__ARCHIVE": str(folder),
        }
        print(f"{folder.name} messages, into an empty database and again into the full one", flush=True)
        for _ in range(2):
            measured("rebuild", "wakupush", "pipeline", "rebuild", environment=environment)
        with psycopg.connect(postgres.dsn) as connection:
            query = (
                "SELECT count(*) FILTER (WHERE registered), count(*) FILTER (WHERE NOT registered) FROM registrations"
            )
            registered, unregistered = connection.execute(query).fetchone()
            print(f"  {registered} registered, {unregistered} unregistered installations", flush=True)


SHARD = SHARDS[0]
#: The first hour, and how many hours the messages spread over.
START, HOURS = 1_790_000_000 * 10**9 // HOUR * HOUR, 200


def rows(key_file: str, users: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make the messages with these numbers."""
    server = keyfile.read(Path(key_file), PrivateKey)
    for batch in batches:
        made = [message(server, users, number) for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_pylist(
            [{"hash": message_hash(SHARD, each), "pubsub_topic": SHARD, **asdict(each)} for each in made],
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
    [made] = envelopes.to_key(client, to, kind, inner, timestamp=at)
    if 0.35 <= luck < 0.4:
        [other] = envelopes.to_key(client, client.public_key, kind, inner, timestamp=at)
        made = WakuMessage(payload=other.payload, content_topic=made.content_topic, timestamp=at)
    return made


if __name__ == "__main__":
    main()
