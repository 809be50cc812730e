"""Time and memory of the pipeline: ``python -m benchmarks.pipeline EVENTS``, with a tenth of them first.

Each command runs as an operator runs it, start of Java included. Events are made up, into an embedded Postgres. With
``--standalone`` Spark is a master and two workers on loopback. With duckdb installed, the five largest tables of the
report are made by it too, from the same files.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import psutil
import psycopg

from pipeline.lake import Lake
from pipeline.tables import TABLES
from wakupush.devnet.postgres import temporary_postgres
from wakupush.devnet.processes import free_port, wait_until
from wakupush.settings import PipelineSettings
from wakupush.state.migrations import runner

FIRST, DAYS = date(2026, 10, 1), 28
LAST = date(2026, 10, 28)
#: Events that a made-up message makes.
EVENTS_PER_MESSAGE = 7.2
COMPARED = ("funnel_daily", "load_hourly", "latency_daily", "retries_daily", "failures_daily")

#: The same tables in DuckDB's SQL, with PEOPLE for the last column.
DUCKDB = {
    "funnel_daily": """
        SELECT day, kind, kind = 'delivered' AND attempt > 1 AS retried, count(*) AS events, PEOPLE
        FROM events GROUP BY ALL""",
    "load_hourly": "SELECT day, hour(time) AS hour, queue, kind, count(*) AS events, PEOPLE FROM events GROUP BY ALL",
    "latency_daily": """
        SELECT day, kind, queue, platform, count(*) AS events, quantile_disc(value, [0.5, 0.95, 0.99]) AS p, PEOPLE
        FROM (SELECT *, CASE WHEN kind = 'received' THEN queue_wait_ms ELSE latency_ms END AS value FROM events
            WHERE kind IN ('received', 'answered', 'delivered')) AS timed GROUP BY ALL""",
    "retries_daily": """
        SELECT day, platform, attempt, kind, count(*) AS events, PEOPLE
        FROM events WHERE kind IN ('attempt', 'delivered', 'failed', 'unknown') GROUP BY ALL""",
    "failures_daily": """
        SELECT day, kind, failure, platform, count(*) AS events, PEOPLE
        FROM events WHERE failure IS NOT NULL GROUP BY ALL""",
}
PEOPLE = 'count(DISTINCT coalesce("user", trace)) AS people'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events", type=int)
    parser.add_argument("--standalone", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        master = stack.enter_context(standalone()) if options.standalone else "local[2]"
        for events in (options.events // 10, options.events):
            with tempfile.TemporaryDirectory(prefix="wakupush-pipeline-") as directory:
                measure(Path(directory), events, master)


def measure(directory: Path, events: int, master: str) -> None:
    lake = directory / "lake"
    with temporary_postgres() as postgres:
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            runner.migrate(connection)
        environment = os.environ | {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "WAKUPUSH_POSTGRES__DSN": postgres.dsn,
            "WAKUPUSH_PIPELINE__MASTER": master,
            "WAKUPUSH_PIPELINE__LAKE": str(lake),
            "WAKUPUSH_PIPELINE__KEYS": str(directory / "keys"),
            "WAKUPUSH_PIPELINE__REPORTS": str(directory / "reports"),
        }
        days = ("--from", str(FIRST))
        messages = str(round(events / EVENTS_PER_MESSAGE))
        command("synthesize", "--messages", messages, "--days", str(DAYS), *days, "--into", "postgres", env=environment)
        command("export", env=environment)
    stored = Lake(lake).latest()
    size = sum(file.bytes for file in stored.files)
    print(f"  {stored.rows} events, {size / 1e6:.0f} MB of Parquet", flush=True)
    command("report", *days, "--to", str(LAST), env=environment)
    command("capacity", *days, "--to", str(LAST), env=environment)
    if find_spec("duckdb"):
        compare(lake, master)


def command(*words: str, env: dict[str, str]) -> None:
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "wakupush", "pipeline", *words],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        peak = Peak(process.pid)
        _, errors = process.communicate()
    if process.returncode:
        sys.exit(errors.decode())
    print(f"  {words[0]:<12}{time.perf_counter() - begin:7.1f} s{peak.end() / 1e6:9.0f} MB", flush=True)


class Peak:
    """Watches the resident memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        self._pid, self._peak, self._over = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            try:
                root = psutil.Process(self._pid)
                each = [process.memory_info().rss for process in (root, *root.children(recursive=True))]
            except psutil.NoSuchProcess:
                continue
            self._peak = max(self._peak, sum(each))

    def end(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak


def compare(folder: Path, master: str) -> None:
    """Make the same five tables by DuckDB and by Spark, from the same files."""
    import duckdb  # noqa: PLC0415 - may be missing

    from pipeline.session import spark_session  # noqa: PLC0415 - sets up Spark's environment

    lake = Lake(folder)
    files = lake.latest().files
    begin = time.perf_counter()
    database = duckdb.connect(config={"threads": 2})
    paths = [str(folder / file.path) for file in files]
    database.read_parquet(paths, hive_partitioning=True).create_view("events")
    counts = {name: len(database.execute(DUCKDB[name].replace("PEOPLE", PEOPLE)).fetchall()) for name in COMPARED}
    print(f"  DuckDB      {time.perf_counter() - begin:7.1f} s for {len(COMPARED)} tables", flush=True)
    begin = time.perf_counter()
    with spark_session(PipelineSettings(master=master)) as spark:
        started = time.perf_counter()
        events = lake.read(spark, files)
        for table in TABLES:
            if table.name in COMPARED and len(table.build(events, 28).collect()) != counts[table.name]:
                sys.exit(f"{table.name}: Spark and DuckDB do not agree")
        print(
            f"  Spark       {time.perf_counter() - started:7.1f} s for them, after {started - begin:.1f} s to start",
            flush=True,
        )


@contextmanager
def standalone() -> Iterator[str]:
    """Run a master and two workers of one core each on loopback."""
    import pyspark  # noqa: PLC0415 - may be missing

    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": tempfile.mkdtemp()}
    common = ("--host", "127.0.0.1", "--webui-port", "0")
    commands = [(program, "org.apache.spark.deploy.master.Master", *common, "--port", str(port))]
    commands += [
        (program, "org.apache.spark.deploy.worker.Worker", *common, "--cores", "1", "--memory", "2g", master)
    ] * 2
    with tempfile.TemporaryFile("w+") as log, ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(each, env=environment, stdout=log, stderr=log)) for each in commands
        ]

        def registered() -> bool:
            log.seek(0)
            return log.read().count("Successfully registered with master") == len(commands) - 1

        try:
            wait_until(registered, timeout=180, what="two workers")
            yield master
        finally:
            for process in processes:
                process.terminate()


if __name__ == "__main__":
    main()
