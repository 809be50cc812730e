"""Processes that are stopped or killed at any point of a commit, and others at the same time: every event once.

What runs are `wakupush` commands in processes of their own. A stopped one loses its lock, as one does whose machine was
cut off: what is left is the fence.
"""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from support.pipeline import happenings
from support.pipeline.exported import expected_rows, in_lake, make
from support.pipeline.happenings import ignore
from wakupush.devnet.processes import wait_until
from wakupush.pipeline.lake import export
from wakupush.postgres import exporting

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

#: Runs a command, and stops it where it is told to.
PROGRAM = """
import os, signal, sys
from pyspark.sql.readwriter import DataFrameWriterV2
from wakupush.pipeline.lake import lake
from wakupush.cli import main

def stopping(original):
    def stop(*arguments, **options):
        os.kill(os.getpid(), signal.SIGSTOP)
        return original(*arguments, **options)
    return stop

def looking(table, look=lake._state, seen=[]):
    found = look(table)
    seen.append(found)
    if len(seen) == 2:  # the first one is that of the run's beginning
        os.kill(os.getpid(), signal.SIGSTOP)
    return found

match os.environ["STOP"]:
    case "the branch is made": DataFrameWriterV2.append = stopping(DataFrameWriterV2.append)
    case "events are appended": lake.Lake._read_back = stopping(lake.Lake._read_back)
    case "before the commit": lake.Lake._publish = stopping(lake.Lake._publish)
    case "in the transaction": lake._state = looking
main()
"""
STOPS = ("the branch is made", "events are appended", "before the commit", "in the transaction")
IN_POSTGRES = "in the catalog"


@pytest.fixture
def settings(make_settings, dsn):
    return make_settings(dsn, step_rows=400)


@pytest.fixture
def start(settings, dsn):
    """Start a command that stops somewhere; kill it in the end."""
    started = []

    def start(*words, stop=""):
        environment = os.environ | {
            "STOP": stop,
            "WAKUPUSH_POSTGRES__DSN": dsn,
            "WAKUPUSH_PIPELINE__WAREHOUSE": settings.pipeline.warehouse,
            "WAKUPUSH_PIPELINE__KEYS": str(settings.pipeline.keys),
            "WAKUPUSH_PIPELINE__PSEUDONYM_DAYS": str(settings.pipeline.pseudonym_days),
            "WAKUPUSH_PIPELINE__STEP_ROWS": "400",
            "WAKUPUSH_PIPELINE__SHUFFLE_PARTITIONS": "2",
            "WAKUPUSH_PIPELINE__MASTER": "local[1]",
            "WAKUPUSH_PIPELINE__MEMORY": "512m",
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "pipeline", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def is_stopped(process):
    assert process.poll() is None, process.stdout.read()
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def is_waiting(connection):
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%iceberg_tables%'"
    return connection.execute(query).fetchone()[0] > 0


@contextmanager
def held_in_the_catalog(dsn):
    """Keep commits of the table waiting within Postgres until the end of the block."""
    with psycopg.connect(dsn) as holder:
        holder.execute("SELECT FROM wakupush_lake.iceberg_tables FOR UPDATE").fetchall()
        yield


def take_the_lock_from_it(connection):
    """End the connections that hold the advisory lock, as a network that is cut does."""
    query = f"""SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND granted
        AND (classid::bigint << 32 | objid::bigint) = {exporting.LOCK}
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
    assert connection.execute(query).fetchall() == [(True,)]


def stopped(start, connection, stop, *words):
    """Return a command that is stopped where it was told to, all of it."""
    if stop == IN_POSTGRES:
        process = start(*words)
        wait_until(lambda: is_waiting(connection), timeout=600, what="a commit waits")
    else:
        process = start(*words, stop=stop)
        wait_until(lambda: is_stopped(process), timeout=600, what=f"it is stopped: {stop}")
    os.killpg(process.pid, signal.SIGSTOP)
    return process


def first_steps(spark, connection, settings):
    """Export something, so that there is a lake."""
    events = make(30, seed=9)
    happenings.write(connection, events)
    export.run(spark, settings, ignore)
    return events


@pytest.mark.parametrize("stop", STOPS)
def test_who_slept_commits_nothing(spark, connection, settings, start, stop):
    events = first_steps(spark, connection, settings) + (new := make(300))
    happenings.write(connection, new)
    sleeper = stopped(start, connection, stop, "export")
    take_the_lock_from_it(connection)
    export_result = export.run(spark, settings, ignore)
    assert export_result.steps > 1
    os.killpg(sleeper.pid, signal.SIGCONT)
    output, _ = sleeper.communicate(timeout=600)
    assert sleeper.returncode == 2, output
    assert "start" in output
    assert in_lake(spark, settings) == expected_rows(events)
    assert export.run(spark, settings, ignore).rows == 0


@pytest.mark.parametrize("stop", STOPS)
def test_what_is_killed_loses_and_doubles_nothing(spark, connection, settings, start, stop):
    events = make(300)
    happenings.write(connection, events)
    process = stopped(start, connection, stop, "export")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_until(lambda: _is_free(connection), timeout=60, what="its lock is gone")
    assert export.run(spark, settings, ignore).rows == len(events)
    assert in_lake(spark, settings) == expected_rows(events)


def _is_free(connection):
    query = f"""SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
        AND (classid::bigint << 32 | objid::bigint) = {exporting.LOCK}
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
    return connection.execute(query).fetchone()[0] == 0


@pytest.mark.parametrize("end", ["killed", "woken"])
def test_a_commit_in_the_catalog_survives_its_writer(spark, connection, settings, start, end):
    """Postgres has the statement and goes on with it: whether it was committed, the mark tells."""
    events = first_steps(spark, connection, settings) + (new := make(300))
    happenings.write(connection, new)
    with held_in_the_catalog(settings.postgres.dsn.get_secret_value()):
        process = stopped(start, connection, IN_POSTGRES, "export")
        if end == "killed":
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    wait_until(lambda: not is_waiting(connection), timeout=60, what="the commit is through")
    if end == "woken":
        take_the_lock_from_it(connection)
    else:
        wait_until(lambda: _is_free(connection), timeout=60, what="its lock is gone")
    rest = export.run(spark, settings, ignore)
    assert 0 < rest.rows <= len(new)
    if end == "woken":
        os.killpg(process.pid, signal.SIGCONT)
        output, _ = process.communicate(timeout=600)
        assert process.returncode == 2, output
    assert in_lake(spark, settings) == expected_rows(events)
