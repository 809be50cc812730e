"""Events go from Postgres into the lake exactly once, whatever is killed, late, open or refused."""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import happenings
import psycopg
import pytest
from happenings import FIRST, TODAY, day_of, seconds

from pipeline import export, folders
from pipeline.errors import PipelineError
from pipeline.lake import Lake
from wakupush.devnet.processes import wait_until
from wakupush.postgres import events as writing


def ignore(*_):
    pass


def make(messages, seed=1):
    """Return events of two days: each day and kind is a file."""
    return happenings.make(messages, seed, days=happenings.DAYS[-2:])


def in_lake(spark, settings):
    """Return the events of the lake as (day, kind, seconds, latency in ms, attempt), counted."""
    lake = Lake(settings.pipeline.lake)
    rows = lake.read(spark, lake.latest().files).selectExpr(
        "CAST(day AS STRING)", "kind", "unix_timestamp(time)", "latency_ms", "attempt"
    )
    return Counter(tuple(row) for row in rows.collect())


def expected(events):
    return Counter(
        (
            str(day_of(e)),
            str(e.kind),
            int(e.time) if e.kind in {"received", "foreign"} else int(e.time) // 3600 * 3600,
            round(1000 * e.latency) if e.kind in {"answered", "delivered", "foreign"} else None,
            e.attempt,
        )
        for e in events
    )


def test_every_event_once_over_many_runs(spark, connection, dsn, make_settings):
    settings = make_settings(dsn, step_rows=300)
    first, second = make(120, seed=1), make(60, seed=2)
    happenings.write(connection, first)
    told = []
    done = export.run(spark, settings, lambda done, total: told.append((done, total)))
    assert done.rows == len(first)
    assert done.steps > 1
    assert told[0] == (0, len(first))
    assert told[-1] == (len(first), len(first))
    assert in_lake(spark, settings) == expected(first)
    assert export.run(spark, settings, ignore).rows == 0
    # Among them events of days that are in the lake already.
    happenings.write(connection, second)
    assert export.run(spark, settings, ignore).rows == len(second)
    assert in_lake(spark, settings) == expected(first + second)
    # Every day of the past and kind is one file again.
    files = Lake(settings.pipeline.lake).latest().files
    assert len({(file.day, file.kind) for file in files}) == len(files)
    assert sum(file.rows for file in files) == len(first + second)


def test_what_names_a_user_cannot_be_joined_by_time(spark, connection, dsn, make_settings):
    """Not to messages of the network, nor to events that have their second and their message."""
    settings = make_settings(dsn)
    happenings.write(connection, make(200))
    export.run(spark, settings, ignore)
    lake = Lake(settings.pipeline.lake)
    files = lake.latest().files
    of_users = lake.read(spark, files).where("user IS NOT NULL")
    assert of_users.select("kind").distinct().count() > 8
    assert of_users.where("minute(time) <> 0 OR second(time) <> 0").count() == 0
    assert of_users.where("trace IS NOT NULL OR worker IS NOT NULL OR batch_size IS NOT NULL").count() == 0
    assert {row.kind for row in of_users.where("latency_ms IS NOT NULL").select("kind").distinct().collect()} == {
        "delivered"
    }
    # Nor by the order of the rows.
    for file in files:
        users = [row.user for row in lake.read(spark, [file]).collect() if row.user is not None]
        assert users == sorted(users)


def test_a_transaction_that_is_open_holds_back_what_comes_after_and_loses_nothing(
    spark, connection, dsn, make_settings
):
    settings = make_settings(dsn)
    early, late, after = (make(10, seed=seed) for seed in (1, 2, 3))
    happenings.write(connection, early)
    with psycopg.connect(dsn) as slow:
        writing.add(slow, late)
        happenings.write(connection, after)
        assert export.run(spark, settings, ignore).rows == len(early)
        slow.commit()
    assert export.run(spark, settings, ignore).rows == len(late) + len(after)
    assert in_lake(spark, settings) == expected(early + late + after)


@pytest.mark.long
def test_a_run_that_is_killed_loses_and_doubles_nothing(spark, connection, dsn, make_settings):
    settings = make_settings(dsn, step_rows=400)
    events = make(500)
    happenings.write(connection, events)
    lake = Lake(settings.pipeline.lake)
    environment = os.environ | {
        "WAKUPUSH_POSTGRES__DSN": dsn,
        "WAKUPUSH_PIPELINE__LAKE": str(settings.pipeline.lake),
        "WAKUPUSH_PIPELINE__KEYS": str(settings.pipeline.keys),
        "WAKUPUSH_PIPELINE__PSEUDONYM_DAYS": str(settings.pipeline.pseudonym_days),
        "WAKUPUSH_PIPELINE__STEP_ROWS": "400",
        "WAKUPUSH_PIPELINE__SHUFFLE_PARTITIONS": "2",
        "WAKUPUSH_PIPELINE__MASTER": "local[1]",
        "WAKUPUSH_PIPELINE__MEMORY": "512m",
    }
    command = [sys.executable, "-m", "wakupush", "pipeline", "export"]
    with subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL) as run:

        def in_the_middle():
            assert run.poll() is None, "it ended before it could be killed"
            committed = lake.latest()
            paths = {lake.folder / file.path for file in committed.files}
            try:
                begun = any(path not in paths for path in (lake.folder / "events").rglob("*.parquet"))
            except FileNotFoundError:  # Spark moves folders meanwhile
                return False
            return committed.number >= 1 and begun

        try:
            wait_until(in_the_middle, timeout=600, what="an export in the middle of a step")
        finally:
            os.killpg(run.pid, signal.SIGKILL)
    committed = lake.latest()
    assert 0 < committed.rows < len(events)
    rest = export.run(spark, settings, ignore)
    assert rest.rows == len(events) - committed.rows
    assert in_lake(spark, settings) == expected(events)
    # What the killed run left is deleted once nobody can be reading it.
    assert lake.sweep(grace=-1) > 0
    assert in_lake(spark, settings) == expected(events)


def test_two_runs_at_once_are_refused(spark, dsn, make_settings):
    settings = make_settings(dsn)
    with folders.writing(settings.pipeline.lake), pytest.raises(PipelineError, match="another run is writing"):
        export.run(spark, settings, ignore)


def test_events_of_a_newer_schema_are_not_taken_over(spark, connection, dsn, make_settings):
    happenings.write(connection, make(3))
    connection.execute("UPDATE delivery_events SET schema_version = 4")
    settings = make_settings(dsn)
    with pytest.raises(PipelineError, match="schema version 4"):
        export.run(spark, settings, ignore)
    assert Lake(settings.pipeline.lake).latest().number == 0


def test_another_cluster_is_refused(spark, connection, dsn, make_settings):
    settings = make_settings(dsn)
    happenings.write(connection, make(3))
    export.run(spark, settings, ignore)
    lake = Lake(settings.pipeline.lake)
    snapshot = lake.latest()
    for changed in (replace(snapshot, source="another"), replace(snapshot, watermark=1 << 60)):
        lake.commit(replace(changed, number=lake.latest().number + 1))
        with pytest.raises(PipelineError, match="another Postgres cluster"):
            export.run(spark, settings, ignore)


def test_a_database_that_was_restored_to_an_earlier_time_is_refused(spark, connection, dsn, make_settings):
    """The numbers of the transactions that were lost are given to others, which would seem to be in the lake."""
    settings = make_settings(dsn)
    happenings.write(connection, make(30))
    export.run(spark, settings, ignore)
    snapshot = Lake(settings.pipeline.lake).latest()
    last = snapshot.watermark - 1

    def is_lost():
        return export._is_lost(connection, last, snapshot.last_event)

    assert not is_lost()
    # Retention takes the older ones as well.
    for which, expected in (("TRUE", False), ("transaction_id = %s::text::xid8", True)):
        with connection.transaction(force_rollback=True):
            connection.execute(f"DELETE FROM delivery_events WHERE {which}", [last] if "%s" in which else [])
            assert is_lost() is expected
    change = "UPDATE delivery_events SET time = time + interval '1 microsecond' WHERE transaction_id = %s::text::xid8"
    assert connection.execute(change, [last]).rowcount
    with pytest.raises(PipelineError, match="lost transactions"):
        export.run(spark, settings, ignore)


def test_what_keeps_it_from_working_is_told(spark, connection, dsn, make_settings, tmp_path):
    with pytest.raises(PipelineError, match="does not answer"):
        export.run(spark, make_settings(), ignore)
    with pytest.raises(PipelineError, match="run `wakupush migrate`"):
        export.run(spark, make_settings(dsn.rsplit("/", 1)[0] + "/postgres"), ignore)
    connection.execute("DROP ROLE IF EXISTS nobody")
    connection.execute("CREATE ROLE nobody LOGIN")
    happenings.write(connection, make(3))
    with pytest.raises(PipelineError, match="permission denied for view delivery_history"):
        export.run(spark, make_settings(dsn.replace("postgres@", "nobody@")), ignore)
    with pytest.raises(PipelineError, match="must not lie in the lake"):
        export.run(spark, make_settings(dsn, keys=tmp_path / "lake" / "keys"), ignore)
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="cannot be written"):
        export.run(spark, make_settings(dsn, lake=tmp_path / "file" / "lake"), ignore)


def test_days_that_are_too_old_are_forgotten(spark, connection, dsn, make_settings):
    events = happenings.make(60)
    happenings.write(connection, events)
    keep = (TODAY - FIRST).days - 2
    done = export.run(spark, make_settings(dsn, retention={"lake": keep * 86_400.0}), ignore)
    old = [event for event in events if day_of(event) < TODAY - timedelta(days=keep)]
    assert old
    assert done.forgotten_rows == len(old)
    left = Lake(make_settings(dsn).pipeline.lake).latest()
    assert left.rows == len(events) - len(old)


def test_one_key_with_most_of_the_events(spark, connection, dsn, make_settings):
    """Three quarters of all events are of one user, one day and one kind."""
    events = make(60)
    hot = next(event for event in events if event.kind == "admitted")
    events += [replace(hot, time=seconds(FIRST) + number / 100) for number in range(3 * len(events))]
    happenings.write(connection, events, size=700)
    settings = make_settings(dsn, step_rows=500)
    assert export.run(spark, settings, ignore).rows == len(events)
    assert in_lake(spark, settings) == expected(events)


def test_a_lake_without_a_key_goes_on(spark, connection, dsn, make_settings):
    settings = make_settings(dsn)
    happenings.write(connection, make(5))
    export.run(spark, settings, ignore)
    shutil.rmtree(settings.pipeline.keys)
    more = make(5, seed=2)
    happenings.write(connection, more)
    assert export.run(spark, settings, ignore).rows == len(more)
