"""Time and memory of rebuilding: ``python -m benchmarks.rebuild MESSAGES`` measures a tenth of them, then all.

An archive is made up by Spark, the same users, devices and versions each time. Of a hundred messages,
sixty are registrations (some older than those before, repeated, or of devices that go), thirty push requests, five
sealed to others, five refused for their grant. Commands run as an operator runs them, start of Java included.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from functools import partial
from pathlib import Path

import psycopg
from pyspark.sql.pandas.types import from_arrow_schema

from benchmarks.commands import measured
from benchmarks.made_archive import rows
from wakupush.devnet.postgres import temporary_postgres
from wakupush.pipeline.archive.files import SCHEMA, Archive
from wakupush.pipeline.session import spark_session
from wakupush.postgres.migrations import runner
from wakupush.protocol.keys import PrivateKey
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
    server = keyfile.read(key_file, PrivateKey.from_hex).public_key
    target = Archive.of(PipelineSettings(archive=folder), server).folder
    begin = time.perf_counter()
    with spark_session(PipelineSettings(master="local[2]")) as spark:
        for first in range(0, count, 50_000):
            part = target / f"part{first:09}"
            ids = spark.range(first, min(count, first + 50_000), numPartitions=2)
            frame = ids.mapInArrow(partial(rows, str(key_file), count // OF_A_USER), from_arrow_schema(SCHEMA))
            frame.write.mode("overwrite").option("compression", "zstd").parquet(str(part))
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
