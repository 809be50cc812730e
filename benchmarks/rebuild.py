"""Time and memory of rebuilding: ``python -m benchmarks.rebuild MESSAGES`` measures a tenth of them, then all.

An archive is made up by Spark, seeded: the same seed makes the same users, devices and versions. Of a hundred messages,
sixty are registrations (some older than those before, repeated, or of devices that go), thirty push requests, five
sealed to others, five refused for their grant. Commands run as an operator runs them, start of Java included. With
``--standalone`` Spark is a master and two workers on loopback. The floor is what the primitives alone take.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sqlite3
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
from pyarrow import parquet
from pyspark.sql.pandas.types import from_arrow_schema

from benchmarks.commands import measured, watched
from benchmarks.made_archive import SHARD, START, rows
from pipeline.archive.files import SCHEMA, Archive
from pipeline.session import spark_session
from tests.support.pipeline.standalone import cluster
from wakupush.devnet.demo import messages
from wakupush.devnet.parts.postgres import temporary_postgres
from wakupush.devnet.parts.processes import Process, answers_http, free_port
from wakupush.postgres import query_topics
from wakupush.postgres.migrations import runner
from wakupush.protocol import payload
from wakupush.protocol.keys import PrivateKey, recover
from wakupush.protocol.sealing import seal, unseal
from wakupush.runtime import keyfile
from wakupush.runtime.settings import PipelineSettings

#: Messages of one user, about.
OF_A_USER = 5
FETCHED = 50_000
WARMED = 2_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("messages", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("--folder", type=Path, help="where archives are made, or were made by an earlier run")
    parser.add_argument("--only", choices=("make", "rebuild", "fetch", "warm"))
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wakupush-rebuild-")))
        folder.mkdir(parents=True, exist_ok=True)
        key_file = folder / "identity.key"
        if not key_file.exists():
            keyfile.write(key_file, PrivateKey.generate().secret)
        sizes = (options.messages // 10, options.messages)
        master, others = "local[2]", list
        if options.standalone:
            others = stack.enter_context(watched())
            logs = folder / "cluster"
            logs.mkdir(exist_ok=True)
            master = stack.enter_context(cluster(logs))
        if options.only in {None, "make"}:
            for size in sizes:
                make(folder / str(size), key_file, size, options.seed)
        if options.only in {None, "rebuild"}:
            print(f"floor: {1e6 * floor():.0f} µs of primitives for a registration, on one core", flush=True)
            for size in sizes:
                rebuild(folder / str(size), key_file, master, others)
        if options.only in {None, "fetch"}:
            fetch(folder / str(sizes[0]), key_file)
        if options.only in {None, "warm"}:
            warm(key_file, master, others)


def make(folder: Path, key_file: Path, count: int, seed: int) -> None:
    """Make an archive, in parts of which those that are there stay."""
    server = keyfile.read(key_file, PrivateKey).public_key
    target = Archive.of(PipelineSettings(archive=folder), server).folder
    begin, made = time.perf_counter(), 0
    with spark_session(PipelineSettings(master="local[2]")) as spark:
        for first in range(0, count, 50_000):
            part = target / f"part{first:09}"
            if (part / "_SUCCESS").exists():
                continue
            ids = spark.range(first, min(count, first + 50_000), numPartitions=2)
            made_rows = ids.mapInArrow(
                partial(rows, str(key_file), seed, count // OF_A_USER), from_arrow_schema(SCHEMA)
            )
            made_rows.write.mode("overwrite").option("compression", "zstd").parquet(str(part))
            made += 50_000
            print(f"  {part.name} after {time.perf_counter() - begin:.0f} s", flush=True)
    size = sum(path.stat().st_size for path in target.glob("*/*.parquet"))
    print(f"{count} messages, {size / 1e6:.0f} MB of Parquet", flush=True)


def rebuild(folder: Path, key_file: Path, master: str, others: Callable[[], list[int]]) -> None:
    """Rebuild an archive into an empty database, and then again, when there is nothing to be stored."""
    with temporary_postgres() as postgres:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            runner.migrate(connection)
        environment = environment_of(key_file, master) | {
            "WAKUPUSH_POSTGRES__DSN": postgres.dsn,
            "WAKUPUSH_PIPELINE__ARCHIVE": str(folder),
        }
        print(f"{folder.name} messages, into an empty database and again into the full one", flush=True)
        for _ in range(2):
            measured("rebuild", "wakupush", "pipeline", "rebuild", environment=environment, others=others)
        with psycopg.connect(postgres.dsn) as connection:
            query = (
                "SELECT count(*) FILTER (WHERE registered), count(*) FILTER (WHERE NOT registered) FROM registrations"
            )
            registered, unregistered = connection.execute(query).fetchone()
            print(f"  {registered} registered, {unregistered} unregistered installations", flush=True)


def environment_of(key_file: Path, master: str) -> dict[str, str]:
    return os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "WAKUPUSH_IDENTITY_KEY_FILE": str(key_file),
        "WAKUPUSH_PIPELINE__MASTER": master,
    }


def floor() -> float:
    """Return the seconds that the primitives of a registration take on one core, without a line of ours around them.

    Two ECDH (envelope, registration), three recovered signatures (transport, application, grant), AES-CTR with HMAC
    over the envelope, AES-GCM over the registration.
    """
    server, client = PrivateKey.generate(), PrivateKey.generate()
    signature = client.sign(b"d" * 32)
    key = server.shared_key(client.public_key)
    plaintext = messages.registration(client, server.public_key).SerializeToString()
    sealed, envelope = seal(key, plaintext), payload.seal_asymmetric(plaintext, server.public_key)

    def seconds(work: Callable[[], object]) -> float:
        return min(timeit.repeat(work, number=500, repeat=5)) / 500

    ecdh = seconds(lambda: server.shared_key(client.public_key))
    # Opening an unsigned envelope is an ECDH and what is symmetric.
    symmetric = seconds(lambda: payload.open_asymmetric(envelope, server)) - ecdh + seconds(lambda: unseal(key, sealed))
    recovered = seconds(lambda: recover(b"d" * 32, signature))
    each = {"ECDH": ecdh, "recovering a signature": recovered, "symmetric": symmetric}
    print("  " + ", ".join(f"{name} {1e6 * taken:.0f} µs" for name, taken in each.items()), flush=True)
    return 2 * ecdh + 3 * recovered + symmetric


def fetch(folder: Path, key_file: Path) -> None:
    """Fetch messages from the development node, whose archive they are put into as they are."""
    server = keyfile.read(key_file, PrivateKey).public_key
    source = Archive.of(PipelineSettings(archive=folder), server)
    with tempfile.TemporaryDirectory(prefix="wakupush-fetch-") as directory:
        database = Path(directory) / "archive.sqlite"
        port = free_port()
        options = ("--archive-window", "any", "--archive-file", str(database), "--shard", SHARD)
        node = Process(
            "waku",
            [sys.executable, "-m", "wakupush.devnet.serve", "waku", "--port", str(port), *options],
            log=Path(directory) / "waku.log",
            ready=lambda: answers_http(f"http://127.0.0.1:{port}/debug/v1/info"),
            start_timeout=120,
        )
        with node:
            pass  # it makes the table
        stored = [row for path in source.files() for row in parquet.read_table(path, schema=SCHEMA).to_pylist()][
            :FETCHED
        ]
        with sqlite3.connect(database) as connection:
            connection.executemany(
                "INSERT INTO message (hash, pubsub_topic, arrived, payload, content_topic, version, timestamp, meta,"
                " ephemeral) VALUES (:hash, :pubsub_topic, :timestamp, :payload, :content_topic, :version, :timestamp,"
                " :meta, :ephemeral)",
                stored,
            )
        connection.close()
        since = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(START // 10**9))
        with node:
            for connections in (1, 4):
                print(f"{len(stored)} messages of the development node, {connections} at the same time", flush=True)
                environment = environment_of(key_file, "local") | {
                    "WAKUPUSH_WAKU__URL": f"http://127.0.0.1:{port}",
                    "WAKUPUSH_WAKU__SHARDS": json.dumps([SHARD]),
                    "WAKUPUSH_PIPELINE__ARCHIVE": f"{directory}/{connections}",
                    "WAKUPUSH_PIPELINE__ARCHIVE_CONNECTIONS": str(connections),
                }
                words = ("wakupush", "pipeline", "fetch-archive", "--since", since)
                measured("fetch-archive", *words, environment=environment)
                fetched = Archive.of(PipelineSettings(archive=Path(directory) / str(connections)), server)
                count = sum(parquet.read_metadata(path).num_rows for path in fetched.files())
                if count != len(stored):
                    sys.exit(f"{count} messages were fetched")


def warm(key_file: Path, master: str, others: Callable[[], list[int]]) -> None:
    with temporary_postgres() as postgres:
        with psycopg.connect(postgres.dsn) as connection:
            runner.migrate(connection)
            query_topics.add(
                connection, [hashlib.shake_256(bytes([i & 255, i >> 8])).digest(64) for i in range(WARMED)]
            )
        print(f"{2 * WARMED} keys of query topics", flush=True)
        environment = environment_of(key_file, master) | {"WAKUPUSH_POSTGRES__DSN": postgres.dsn}
        measured("warm-topics", "wakupush", "pipeline", "warm-topics", environment=environment, others=others)


if __name__ == "__main__":
    main()
