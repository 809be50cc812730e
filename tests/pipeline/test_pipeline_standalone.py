"""On a cluster of two workers the numbers are those of one process, with Spark as an operator has it."""

import os
import subprocess
import sys

import happenings
import psycopg
import pytest
from happenings import FIRST, LAST
from standalone import standalone  # noqa: F401 - a fixture

from pipeline import export, report
from pipeline.lake import Lake
from pipeline.tables import TABLES

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def numbers(spark, folder):
    """Return the rows of every table of a report, without the lake's own pseudonyms."""
    found = {}
    for table in TABLES:
        frame = spark.read.parquet(str(folder / table.name)).drop("pseudonym")
        found[table.name] = sorted(tuple(row) for row in frame.fillna(-1).collect())
    return found


def test_a_cluster_has_the_numbers_of_one_process(
    spark,
    dsn,
    make_settings,
    tmp_path,
    standalone,  # noqa: F811 - the fixture
):
    events = happenings.make(150, days=happenings.DAYS[-2:])
    with psycopg.connect(dsn, autocommit=True) as connection:
        happenings.write(connection, events)
    environment = os.environ | {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "WAKUPUSH_POSTGRES__DSN": dsn,
        "WAKUPUSH_PIPELINE__MASTER": standalone,
        "WAKUPUSH_PIPELINE__MEMORY": "1g",
        "WAKUPUSH_PIPELINE__LAKE": str(tmp_path / "cluster" / "lake"),
        "WAKUPUSH_PIPELINE__KEYS": str(tmp_path / "cluster" / "keys"),
        "WAKUPUSH_PIPELINE__REPORTS": str(tmp_path / "cluster" / "reports"),
        "WAKUPUSH_PIPELINE__PSEUDONYM_DAYS": str(happenings.FOR_EVER),
        "WAKUPUSH_PIPELINE__STEP_ROWS": "500",
        "WAKUPUSH_PIPELINE__SHUFFLE_PARTITIONS": "2",  # one for each worker
    }

    def run(*words):
        command = [sys.executable, "-m", "wakupush", "pipeline", *words]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert f"{len(events)} events taken over" in run("export")
    run("report", "--from", str(FIRST), "--to", str(LAST))
    settings = make_settings(dsn)
    export.run(spark, settings, lambda *_: None)
    alone = report.run(spark, settings, FIRST, LAST, lambda *_: None)
    one, other = (Lake(lake).latest() for lake in (settings.pipeline.lake, tmp_path / "cluster" / "lake"))
    assert {(file.day, file.kind, file.rows) for file in one.files} == {
        (file.day, file.kind, file.rows) for file in other.files
    }
    there = tmp_path / "cluster" / "reports" / alone.page.parent.name
    assert numbers(spark, there) == numbers(spark, alone.page.parent)
    assert (there / "report.html").exists()
