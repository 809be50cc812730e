"""`make age`: runs each job and statement against a database as old and large as a server's after a year.

The database is made once, in a directory that is kept. Its indexes are warm: each statement runs twice, the first time
in vain. What grows with time is there at a scale that is printed; its plans count, not its times.

Exits with 1 if something takes too long, reads too much, or holds others up.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import psycopg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.age.fill import DATED, Size, fill
from benchmarks.age.run import Bystander, run, table
from benchmarks.age.statements import Recorder
from benchmarks.age.work import every_work, processes
from benchmarks.running import UNLIMITED, end_on_signals
from wakupush.devnet.postgres import PostgresServer
from wakupush.devnet.stack import External, Stack
from wakupush.postgres.migrations import runner
from wakupush.runtime.logging import configure
from wakupush.runtime.settings import RetentionSettings, load_settings

#: Of a machine with a few GB to spare. Full pages in the log after a checkpoint are not what a statement costs.
POSTGRES = {
    "shared_buffers": "2GB",
    "work_mem": "4MB",
    "max_wal_size": "2GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    # Its log says who waits for a lock.
    "log_lock_waits": "on",
    "deadlock_timeout": "50ms",
}
#: Seconds after which rows that have an age are made anew.
FRESH_SECONDS = 6 * 3600
WIDTH = 140


def make(server: PostgresServer, size: Size, mark: Path, console: Console) -> None:
    """Fill the database, as far as it is not there yet."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        if not mark.exists():  # the last run may have ended in the midst of it
            connection.execute("DROP SCHEMA IF EXISTS wakupush_lake, public CASCADE")
            connection.execute("CREATE SCHEMA public")
        runner.migrate(connection)
    mark_size, mark_time = mark.read_text().split() if mark.exists() else ("", "0")
    parts = (
        ()
        if mark_size != repr(size).replace(" ", "")
        else DATED
        if time.time() - float(mark_time) > FRESH_SECONDS
        else DATED[2:]
    )
    counts = size.rows(RetentionSettings())
    total = sum(rows for part, rows in counts.items() if not parts or part in parts)
    start = time.monotonic()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    ) as progress:
        bar = progress.add_task("rows", total=total)
        fill(server.dsn, size, parts, lambda part, rows: progress.update(bar, advance=rows, description=part))
    if parts != DATED[2:]:
        mark.write_text(f"{repr(size).replace(' ', '')} {time.time()}")
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        [(bytes_used,)] = connection.execute("SELECT pg_database_size(current_database())").fetchall()
    console.print(f"made in {(time.monotonic() - start) / 60:.0f} minutes, {bytes_used / 1e9:.1f} GB: {size.scales()}")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="make age", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--directory", type=Path, default=Path("age"), help="of the database, which is kept")
    parser.add_argument("--users", type=int, default=Size().users)
    options = parser.parse_args()
    console = Console(highlight=False, soft_wrap=True)
    share = options.users / Size().users
    size = Size(users=options.users, expired=int(Size().expired * share), pending=int(Size().pending * share))
    directory = options.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    parts = directory / "parts"
    shutil.rmtree(parts, ignore_errors=True)
    with ExitStack() as opened:
        server = opened.enter_context(PostgresServer(directory, fsync=False, settings=POSTGRES))
        make(server, size, directory / "made", console)
        defaults = UNLIMITED | {"WAKUPUSH_LOG_LEVEL": "WARNING"}
        stack = Stack(parts, external=External(postgres_dsn=server.dsn), defaults=defaults)
        opened.callback(stack.stop)
        stack.start_parts()
        os.environ.update({name: value for name, value in stack.environment.items() if name.startswith("WAKUPUSH_")})
        configure(load_settings())
        recorder, bystander = Recorder(), Bystander(server.dsn, directory / "postgres.log")
        own = opened.enter_context(processes(load_settings(), recorder))
        connection = opened.enter_context(psycopg.connect(server.dsn, autocommit=True))
        opened.enter_context(bystander.beside())
        results = []
        for work in every_work(own, size):
            results.append(run(work, recorder, connection, bystander.longest))
            console.print(f"{work.name}: {results[-1].elapsed:.2f} s")
    console.width = max(console.width, WIDTH)
    console.print(table(results))
    findings = Counter(finding for result in results for finding in result.findings())
    for finding in findings:
        console.print(finding, style="red", markup=False)
    console.print(f"{len(findings)} findings")
    return int(bool(findings))


if __name__ == "__main__":
    end_on_signals()
    sys.exit(main())
