"""Maintenance: few files of many, in their order; what is too old goes, and nothing that somebody may still read."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from support.pipeline import happenings
from support.pipeline.happenings import DAYS, FIRST, day_of, ignore, kept_from
from wakupush.pipeline import tidy
from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake import catalog, export
from wakupush.pipeline.lake.lake import EVENTS, Lake
from wakupush.pipeline.report import report

DAY = 86_400.0


@pytest.fixture
def settings(make_settings, dsn):
    return make_settings(dsn, smallest_cell=2)


@pytest.fixture
def exported(spark, connection, settings):
    """A lake of two exports, and the events in it."""
    events = []
    for seed in (1, 2):
        new = happenings.make(60, seed=seed, days=DAYS[:2])
        happenings.write(connection, new)
        export.run(spark, settings, ignore)
        events += new
    return Lake.of(spark, settings), events


def count(lake, version=""):
    return lake.spark.sql(f"SELECT count(*) FROM {EVENTS} {version}").first()[0]


def on_disk(settings):
    return set(Path(settings.pipeline.warehouse).rglob("*.parquet"))


def later(monkeypatch, seconds, since=None):
    """Let tidy believe that time has passed, since now unless told otherwise."""
    now = (time.time() if since is None else since) + seconds
    monkeypatch.setattr(tidy, "time", SimpleNamespace(time=lambda: now))


def test_files_of_a_day_become_one_sorted_by_user(spark, exported, settings):
    lake, events = exported
    before = lake.state()
    rows = lake.spark.table(EVENTS).selectExpr("sum(hash(*) & 65535)").first()
    result = tidy.run(spark, settings, [])
    files = lake.spark.sql(f"SELECT partition.day, record_count FROM {EVENTS}.files").collect()
    assert len({row.day for row in files}) == len(files) < result.compacted
    assert sum(row.record_count for row in files) == len(events) == count(lake)
    assert lake.spark.table(EVENTS).selectExpr("sum(hash(*) & 65535)").first() == rows
    unordered = f"""SELECT count(*) FROM (
        SELECT user, lag(user) OVER (PARTITION BY _file, kind ORDER BY _pos) AS before FROM {EVENTS}
    ) WHERE before > user"""
    assert lake.spark.sql(unordered).first()[0] == 0
    assert lake.state().mark == before.mark
    assert tidy.run(spark, settings, []).compacted == 0
    # The next export goes on where the last one ended.
    assert export.run(spark, settings, ignore).rows == 0


@pytest.mark.long
def test_replaced_files_stay_for_a_day(spark, exported, settings, monkeypatch):
    lake, events = exported
    mark = lake.state().mark
    snapshot = lake.state().snapshot
    replaced = on_disk(settings)
    # It is the table's state for a day when it is replaced.
    later(monkeypatch, DAY + 0.001, since=lake.table().history()[-1].timestampMillis() / 1000)
    assert tidy.run(spark, settings, []).compacted > 0
    assert replaced < on_disk(settings)
    assert not replaced <= {Path(file.path) for file in lake.files()}
    later(monkeypatch, 0.9 * DAY)
    assert tidy.run(spark, settings, []).deleted == 0
    assert count(lake, f"VERSION AS OF {snapshot}") == len(events), "somebody began to read it less than a day ago"
    later(monkeypatch, 1.1 * DAY)
    assert tidy.run(spark, settings, []).deleted > 0
    assert on_disk(settings) == {Path(file.path) for file in lake.files()} != replaced
    assert count(lake) == len(events)
    assert lake.state().mark == mark
    assert lake.spark.sql(f"SELECT count(*) FROM {EVENTS}.snapshots").first()[0] == 1
    assert export.run(spark, settings, ignore).rows == 0


def test_days_past_the_retention_are_gone_a_day_later(spark, exported, settings, monkeypatch):
    lake, events = exported
    retention = settings.retention.model_copy(update={"lake": kept_from(DAYS[1])})
    old = [event for event in events if day_of(event) < DAYS[1]]
    result = tidy.run(spark, settings.model_copy(update={"retention": retention}), [])
    assert result.forgotten == len(old) > 0
    assert count(lake) == len(events) - len(old)
    assert list(lake.sizes()) == [DAYS[1]]
    of_day = [path for path in on_disk(settings) if f"day={FIRST}" in str(path)]
    assert of_day
    later(monkeypatch, 1.1 * DAY)
    tidy.run(spark, settings, [])
    assert not any(path.exists() for path in of_day)


def test_only_files_that_cannot_be_committed_go(spark, exported, settings):
    lake, events = exported
    lake.spark.sql(f"ALTER TABLE {EVENTS} CREATE BRANCH export_left")
    lake.spark.table(EVENTS).limit(5).writeTo(f"{EVENTS}.branch_export_left").append()
    some = next(iter(on_disk(settings)))
    orphans = [some.with_name(name) for name in ("old.parquet", "new.parquet")]
    for orphan, age in zip(orphans, (4 * DAY, 2 * DAY), strict=True):
        orphan.write_bytes(b"left")
        os.utime(orphan, (time.time() - age,) * 2)
    tidy.run(spark, settings, [])
    assert [row.name for row in lake.spark.sql(f"SELECT name FROM {EVENTS}.refs").collect()] == ["main"]
    assert [orphan.exists() for orphan in orphans] == [False, True]
    assert count(lake) == len(events)


@pytest.mark.long
def test_tables_of_reports_are_tidied_too(spark, exported, settings, monkeypatch):
    lake, _ = exported
    for _ in range(2):
        report.run(spark, settings, FIRST, DAYS[1], ignore)
    table = f"{catalog.CATALOG}.{report.SCHEMA}.funnel_daily"
    snapshots = f"SELECT count(*) FROM {table}.snapshots"
    rows = lake.spark.table(table).count()
    assert lake.spark.sql(snapshots).first()[0] == 2
    later(monkeypatch, 1.1 * DAY)
    tidy.run(spark, settings, [])
    assert lake.spark.sql(snapshots).first()[0] == 1
    assert lake.spark.table(table).count() == rows


def test_tidy_and_writers_exclude_each_other(spark, settings):
    with catalog.alone(settings):
        for run in (lambda: tidy.run(spark, settings, []), lambda: export.run(spark, settings, ignore)):
            with pytest.raises(PipelineError, match="another run is writing"):
                run()
    assert tidy.run(spark, settings, []) == tidy.TidyTotals(compacted=0, deleted=0, forgotten=0, without=0)
