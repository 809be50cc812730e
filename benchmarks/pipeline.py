"""Time and memory of the pipeline: ``python -m benchmarks.pipeline [--events 10000000]``.

Every step runs with a tenth of the events, and then with all:

make        make up events in an embedded Postgres: four weeks, of which one day is empty; a tenth of all events are of
            one user, one day and one kind
export      `wakupush pipeline export` into a new lake, all cores
report      `wakupush pipeline report`, all cores, into Postgres too
capacity    `wakupush pipeline capacity`
tidy        `wakupush pipeline tidy`, after which a day is one file; and bytes a row, against plain Parquet

Each command runs as an operator runs it, the start of Java included. Memory is the most that all its processes had at
the same time; Postgres is not among them.
"""

import argparse
import os
import tempfile
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

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


def make(size: Size) -> None:
    with psycopg.connect(size.postgres.dsn, autocommit=True) as connection:
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
    pipeline(size, "export")


def report(size: Size) -> None:
    pipeline(size, "report", *REPORTED)


def capacity(size: Size) -> None:
    pipeline(size, "capacity", *REPORTED)


def tidy(size: Size) -> None:
    pipeline(size, "tidy")
    paths = files(size.dsn)
    total = sum(Path(path).stat().st_size for path in paths)
    plain = size.folder / "plain.parquet"
    with duckdb.connect() as database:
        [(rows,)] = database.read_parquet(paths).aggregate("count(*)").fetchall()
        database.read_parquet(paths).write_parquet(str(plain), compression="zstd")
    sizes = (
        f"{total / rows:.1f} bytes an event in {len(paths)} files, {plain.stat().st_size / rows:.1f} in plain Parquet"
    )
    print(f"  {rows:,} events, {sizes}", flush=True)
    plain.unlink()


def files(dsn: str) -> list[str]:
    """Return the files of events, as a reader of Iceberg finds them."""
    uri = f"{dsn.replace('postgresql:', 'postgresql+psycopg:')}?options=-csearch_path%3Dwakupush_lake"
    with load_catalog("lake", type="sql", uri=uri) as catalog:
        return [task.file.file_path for task in catalog.load_table("wakupush.events").scan().plan_files()]


def pipeline(size: Size, *words: str) -> None:
    """Run a command of the pipeline, and print its time and memory."""
    measured(words[0], "wakupush", "pipeline", *words, environment=size.environment())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wakupush-pipeline-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres runs as another user
        with PostgresServer(folder / "postgres", fsync=False) as postgres:
            for step in (make, export, report, capacity, tidy):
                for events in (options.events // 10, options.events):
                    own = folder / str(events)
                    own.mkdir(exist_ok=True)
                    print(f"{step.__name__}, {events:,} events", flush=True)
                    step(Size(own, events, postgres))


if __name__ == "__main__":
    main()
