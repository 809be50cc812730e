"""Time and memory of rebuilding: ``python -m benchmarks.rebuild MESSAGES`` measures a tenth of them, then all.

An archive is made up by Spark, seeded: the same seed makes the same users, devices and versions. Of a hundred messages,
sixty are registrations (some older than those before, repeated, or of devices that go), thirty push requests, five
sealed to others, five refused for their grant. Commands run as an operator runs them, start of Java included.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg
from pyspark.sql.pandas.types import from_arrow_schema

from benchmarks.commands import measured
from benchmarks.made_archive import rows
from pipeline.archive.files import SCHEMA, Archive
from pipeline.session import spark_session
from wakupush.devnet.parts.postgres import temporary_postgres
from wakupush.postgres.migrations import runner
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime import keyfile
from wakupush.runtime.settings import PipelineSettings

#: Messages of one user, about.
OF_A_USER = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("messages", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where archives are made, or were made by an earlier run")
    parser.add_argument("--only", choices=("make", "rebuild"))
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wakupush-rebuild-")))
        folder.mkdir(parents=True, exist_ok=True)
        key_file = folder / "identity.key"
        if not key_file.exists():
            keyfile.write(key_file, PrivateKey.generate().secret)
        sizes = (options.messages // 10, options.messages)
        if options.only in {None, "make"}:
            for size in sizes:
                make(folder / str(size), key_file, size, options.seed)
        if options.only in {None, "rebuild"}:
            for size in sizes:
                rebuild(folder / str(size), key_file)


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


if __name__ == "__main__":
    main()
