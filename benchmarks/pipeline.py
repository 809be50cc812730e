"""Time and memory of the pipeline: ``python -m benchmarks.pipeline [--events 10000000] [--in FOLDER] [STEP …]``.

Every step runs with a tenth of the events, and then with all. Unless steps are named, all run in this order:

make        make up events in an embedded Postgres: four weeks, of which one day is empty; a tenth of all events are of
            one user, one day and one kind
export      `wakupush pipeline export` into a new lake, all cores
report      `wakupush pipeline report`, all cores, into Postgres too
capacity    `wakupush pipeline capacity`
tidy        `wakupush pipeline tidy`, after which a day is one file; and bytes a row, against plain Parquet

Each command runs as an operator runs it, the start of Java included. Memory is the most that all its processes had at
the same time; Postgres is not among them. With a FOLDER, which is kept, steps can run one by one, and figures are added
to its results.json.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from shutil import rmtree

import duckdb
import psycopg
from pyiceberg.catalog import load_catalog

from benchmarks.commands import measured
from wakupush.devnet.postgres import PostgresServer
from wakupush.pipeline.synthetic.synthesize import WORKER
from wakupush.postgres.migrations import runner

DAYS = 28
FIRST = date(2026, 10, 1)
LAST = FIRST + timedelta(days=DAYS - 1)
EMPTY = FIRST + timedelta(days=9)
#: When the one user gets so much.
BUSY = FIRST + timedelta(days=19)
#: The share of all events that are the one user's, and rows of each transaction that writes them.
SKEW = 0.1
SKEW_ROWS = 5000
#: Events that a made-up message makes, the empty day taken out.
EVENTS_PER_MESSAGE = 6.87
REPORTED = ("--from", str(FIRST), "--to", str(LAST))


CATALOG_TABLES = ("iceberg_tables", "iceberg_namespace_properties")


@dataclass(frozen=True)
class Size:
    """A number of events, with what is made of them."""

    folder: Path
    events: int
    postgres: PostgresServer

    @property
    def database(self) -> str:
        return f"events_{self.events}"

    @property
    def dsn(self) -> str:
        return self.postgres.dsn.rsplit("/", 1)[0] + f"/{self.database}"

    def environment(self) -> dict[str, str]:
        return os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "WAKUPUSH_POSTGRES__DSN": self.dsn,
            "WAKUPUSH_PIPELINE__MASTER": "local[*]",
            "WAKUPUSH_PIPELINE__WAREHOUSE": str(self.folder / "lake"),
            "WAKUPUSH_PIPELINE__KEYS": str(self.folder / "keys"),
            "WAKUPUSH_PIPELINE__REPORTS": str(self.folder / "reports"),
            "WAKUPUSH_PIPELINE__REPORT_DSN": self.dsn,
        }

    def forget(self) -> None:
        """Remove the lake from the catalog, and delete its files."""
        with psycopg.connect(self.dsn) as connection:
            for table in CATALOG_TABLES:
                connection.execute(f"DELETE FROM wakupush_lake.{table} WHERE catalog_name = 'lake'")
        rmtree(self.folder / "lake", ignore_errors=True)


def make(size: Size) -> None:
    with psycopg.connect(size.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {size.database}")
        connection.execute(f"CREATE DATABASE {size.database}")
    with psycopg.connect(size.dsn, autocommit=True) as connection:
        runner.migrate(connection)
        messages = round((1 - SKEW) * size.events / EVENTS_PER_MESSAGE)
        spread = ("--from", str(FIRST), "--days", str(DAYS))
        pipeline(size, "synthesize", "--messages", str(messages), *spread, "--into", "postgres")
        connection.execute("DELETE FROM delivery_events WHERE time >= %s AND time < %s", [EMPTY, EMPTY + timedelta(1)])
        for start in range(0, round(SKEW * size.events), SKEW_ROWS):
            connection.execute(_OF_ONE_USER, {"day": BUSY, "start": start, "rows": SKEW_ROWS, "worker": WORKER})
        connection.execute("VACUUM ANALYZE delivery_events")
        counts = dict(connection.execute("SELECT time::date, count(*) FROM delivery_events GROUP BY 1").fetchall())
        most = connection.execute(
            "SELECT count(*) FROM delivery_events WHERE key_pseudonym IS NOT NULL GROUP BY key_pseudonym"
            " ORDER BY 1 DESC LIMIT 1"
        ).fetchone()
    assert EMPTY not in counts
    print(f"  {sum(counts.values()):,} events on {len(counts)} days, {most[0]:,} of one user", flush=True)


#: Half a day of a user who is sent far too much: admitted, one event a message.
_OF_ONE_USER = """
INSERT INTO delivery_events (time, schema_version, kind, queue, latency, platform, batch_size, worker, trace_id,
    key_pseudonym, installation_pseudonym)
SELECT %(day)s::date + (number * 43.2) * interval '1 millisecond', 1, 'admitted', 'dispatch', 0.02, 'ios', 1,
    %(worker)s, left(encode(sha256(number::text::bytea), 'hex'), 16), sha256('one user'), sha256('one device')
FROM generate_series(%(start)s::int, %(start)s::int + %(rows)s::int - 1) AS number
"""


def export(size: Size) -> None:
    size.forget()
    pipeline(size, "export")


def report(size: Size) -> None:
    pipeline(size, "report", *REPORTED)


def capacity(size: Size) -> None:
    pipeline(size, "capacity", *REPORTED)


def tidy(size: Size) -> None:
    pipeline(size, "tidy")
    paths = files(size.dsn)
    stored = sum(Path(path).stat().st_size for path in paths)
    plain = size.folder / "plain.parquet"
    with duckdb.connect() as database:
        [(rows,)] = database.read_parquet(paths).aggregate("count(*)").fetchall()
        database.read_parquet(paths).write_parquet(str(plain), compression="zstd")
    told = (
        f"{stored / rows:.1f} bytes an event in {len(paths)} files, {plain.stat().st_size / rows:.1f} in plain Parquet"
    )
    print(f"  {rows:,} events, {told}", flush=True)
    plain.unlink()


def files(dsn: str) -> list[str]:
    """Return the files of events, as a reader of Iceberg finds them."""
    uri = f"{dsn.replace('postgresql:', 'postgresql+psycopg:')}?options=-csearch_path%3Dwakupush_lake"
    with load_catalog("lake", type="sql", uri=uri) as catalog:
        return [task.file.file_path for task in catalog.load_table("wakupush.events").scan().plan_files()]


STEPS: dict[str, Callable[[Size], None]] = {
    "make": make,
    "export": export,
    "report": report,
    "capacity": capacity,
    "tidy": tidy,
}


def pipeline(size: Size, *words: str) -> None:
    """Run a command of the pipeline, and print and keep its time and memory."""
    taken = measured(words[0], "wakupush", "pipeline", *words, environment=size.environment())
    found = {"events": size.events, "name": words[0], "seconds": round(taken.seconds, 1)}
    found |= {"cpu_seconds": round(taken.cpu_seconds, 1), "megabytes": round(taken.bytes / 1e6)}
    with (size.folder / "results.json").open("a") as stream:
        stream.write(json.dumps(found) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--in", dest="folder", type=Path)
    parser.add_argument("step", nargs="*", choices=[*STEPS, []])
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(
            nullcontext(options.folder) if options.folder else tempfile.TemporaryDirectory(prefix="wakupush-pipeline-")
        )
        folder = Path(folder)
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)  # Postgres runs as another user
        postgres = stack.enter_context(PostgresServer(folder / "postgres", fsync=False))
        for step in options.step or STEPS:
            for events in (options.events // 10, options.events):
                own = folder / str(events)
                own.mkdir(exist_ok=True)
                print(f"{step}, {events:,} events", flush=True)
                STEPS[step](Size(own, events, postgres))


if __name__ == "__main__":
    main()
