"""On a cluster of two workers, with the lake in an object store, every job comes to what it does in one process."""

import os
import re
import secrets
import subprocess
import sys
from datetime import date

import psutil
import psycopg
import pytest

from support.pipeline import happenings
from support.pipeline.kinds import has_committed, in_lake, in_postgres
from support.pipeline.standalone import cluster, processes
from support.pipeline.stores import store
from wakupush.devnet.processes import wait_until
from wakupush.pipeline.report.report import SCHEMA
from wakupush.pipeline.report.tables import TABLES
from wakupush.postgres import query_topics

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

FIRST, LAST = date(2026, 10, 1), date(2026, 10, 4)
OF_DAYS = ("--from", str(FIRST), "--to", str(LAST))
MADE_UP = ("synthesize", "--messages", "400", "--from", str(FIRST), "--days", "4")


class Way:
    """The whole way of some events, in a database of its own."""

    def __init__(self, dsn, folder, environment):
        self.dsn = dsn
        self.environment = (
            os.environ
            | environment
            | {
                "SPARK_LOCAL_IP": "127.0.0.1",
                "WAKUPUSH_POSTGRES__DSN": dsn,
                "WAKUPUSH_PIPELINE__REPORT_DSN": dsn,
                "WAKUPUSH_PIPELINE__MEMORY": "1g",
                "WAKUPUSH_PIPELINE__KEYS": str(folder / "keys"),
                "WAKUPUSH_PIPELINE__REPORTS": str(folder / "reports"),
                "WAKUPUSH_PIPELINE__PSEUDONYM_DAYS": str(happenings.FOR_EVER),
                "WAKUPUSH_PIPELINE__STEP_ROWS": "1500",
                "WAKUPUSH_PIPELINE__SHUFFLE_PARTITIONS": "2",
            }
        )
        self.outputs = []

    def run(self, *words, meanwhile=lambda: None, expect=0):
        command = [sys.executable, "-m", "wakupush", "pipeline", *words]
        with subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            meanwhile()
            output, errors = process.communicate()
        self.outputs.append(output + errors)
        assert process.returncode == expect, self.outputs[-1]
        return errors if expect else output

    def rows(self):
        """Run every job, and return what there is to compare."""
        output = self.run(*MADE_UP, "--into", "postgres")
        exported = self.run("export")
        with psycopg.connect(self.dsn) as connection:
            query_topics.add(connection, [bytes([number]) * 64 for number in range(9)])
            [(count,)] = connection.execute("SELECT count(*) FROM delivery_history")
        assert f"{count} events taken over" in exported
        self.run("tidy")
        self.run("report", *OF_DAYS)
        plan = self.run("capacity", *OF_DAYS)
        warmed = self.run("warm-topics")
        with psycopg.connect(self.dsn) as connection:
            keys = connection.execute(
                "SELECT key_hash, prefixed, topic, symmetric_key FROM query_topics ORDER BY 1, 2"
            ).fetchall()
            tables = {
                table.name: sorted(
                    map(str, connection.execute(f"SELECT {', '.join(self.columns(table))} FROM {SCHEMA}.{table.name}"))
                )
                for table in TABLES
            }
        return output, plan, warmed, keys, tables

    @staticmethod
    def columns(table):
        return [name for name in (*table.keys, "people", *table.values) if name != "pseudonym"]  # another in each lake


def test_a_cluster_has_the_numbers_of_one_process(new_database, tmp_path):
    local = Way(
        new_database(),
        tmp_path / "local",
        {"WAKUPUSH_PIPELINE__MASTER": "local[2]", "WAKUPUSH_PIPELINE__WAREHOUSE": str(tmp_path / "local" / "lake")},
    )
    expected = local.rows()
    with store(tmp_path) as s3, pytest.MonkeyPatch.context() as patched:
        for name, value in s3.credentials.items():
            patched.setenv(name, value)  # of the workers, too: executors reach the store by themselves
        with cluster(tmp_path) as master:
            shared = Way(new_database(), tmp_path / "shared", s3.environment | {"WAKUPUSH_PIPELINE__MASTER": master})
            assert shared.rows() == expected
            event_count = int(re.match(r"\d+", expected[0])[0])
            assert in_lake(shared.dsn, s3).total() == event_count
        logs = [path.read_text(errors="replace") for path in tmp_path.rglob("*.log")]
        assert not any("planted-secret" in text for text in [*shared.outputs, *logs])


def kill_an_executor(dsn):
    """Kill one of our cluster with SIGKILL while an export goes on."""
    wait_until(lambda: has_committed(dsn), timeout=300, what="the export has committed", interval=0.1)
    processes("org.apache.spark.executor.CoarseGrainedExecutorBackend")[0].kill()


def test_files_of_a_killed_executor_go(new_database, tmp_path):
    with store(tmp_path, behind=4 * 86_400) as s3, pytest.MonkeyPatch.context() as patched:
        for name, value in s3.credentials.items():
            patched.setenv(name, value)
        way = Way(new_database(), tmp_path / "shared", s3.environment)
        event_count = int(re.match(r"\d+", way.run(*MADE_UP, "--into", "postgres"))[0])
        way.environment["WAKUPUSH_PIPELINE__STEP_ROWS"] = "400"
        with cluster(tmp_path) as master:
            way.environment["WAKUPUSH_PIPELINE__MASTER"] = master
            exported = way.run("export", meanwhile=lambda: kill_an_executor(way.dsn))
        assert f"{event_count} events taken over" in exported
        way.environment["WAKUPUSH_PIPELINE__MASTER"] = "local[2]"
        assert in_lake(way.dsn, s3) == in_postgres(way.dsn)
        data = next(name for name in s3.objects() if name.endswith(".parquet"))
        s3.put(orphan := f"{data.rpartition('/')[0]}/left.parquet", b"left")
        way.run("tidy")
        assert orphan not in s3.objects()
        assert in_lake(way.dsn, s3) == in_postgres(way.dsn)


def test_reports_lie_in_the_store_as_browsers_want_them(new_database, tmp_path):
    with store(tmp_path) as s3:
        way = Way(new_database(), tmp_path / "shared", s3.environment)
        way.environment["WAKUPUSH_PIPELINE__REPORTS"] = "s3://lake/for/reports/"
        way.run(*MADE_UP)
        [past, other] = ["for/reports/2020-01-01_2020-01-28/report.html", "for/reports/readme.txt"]
        for name in (past, other):
            s3.put(name, b"text")
        output = way.run("report", *OF_DAYS)
        page = re.search(r"s3://lake/(for/reports/\S+/report\.html)", output)[1]
        kind, text = s3.get(page)
        assert kind == "text/html; charset=utf-8"
        assert text.startswith(b"<!doctype html>")
        kind, text = s3.get(page.replace("report.html", "tables/funnel_daily.csv"))
        assert kind == "text/csv; charset=utf-8"
        assert text.startswith(b"day,stage,people,events,suppressed\n")
        assert past not in s3.objects()
        assert other in s3.objects()
        way.environment["WAKUPUSH_PIPELINE__REPORTS"] = "s3://nowhere/reports"
        assert "the store refuses it" in way.run("report", *OF_DAYS, expect=2)


def test_no_secret_is_on_a_command_line(new_database, tmp_path):
    """Neither the store's nor Postgres's, though both are among the catalog's properties."""
    password = secrets.token_hex(16)
    dsn = new_database()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE with_password LOGIN SUPERUSER PASSWORD '{password}'")
    way = Way(dsn.replace("postgres@", f"with_password:{password}@"), tmp_path, {})
    way.environment["WAKUPUSH_PIPELINE__WAREHOUSE"] = str(tmp_path / "lake")
    way.environment["WAKUPUSH_PIPELINE__CATALOG"] = '{"s3.secret-access-key": "planted-secret"}'
    command = [sys.executable, "-m", "wakupush", "pipeline", *MADE_UP]
    command_lines = set()
    with subprocess.Popen(command, env=way.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while process.poll() is None:
            for each in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
                try:
                    command_lines.add(" ".join(each.cmdline()))
                except psutil.Error:
                    continue
        output = process.stdout.read().decode()
    assert process.returncode == 0, output
    assert any("java" in line for line in command_lines)
    assert not any(secret in text for text in [*command_lines, output] for secret in (password, "planted-secret"))
