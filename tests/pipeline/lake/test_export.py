"""Events go from Postgres into the lake exactly once, whatever is killed, late, open or refused."""

import shutil
from dataclasses import replace

import psycopg
import pytest

from support.deciding import IDENTITY
from support.pipeline import happenings
from support.pipeline.exported import events_of, expected_rows, in_lake, make
from support.pipeline.happenings import ignore
from wakupush.model.roles import Role
from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake import export
from wakupush.pipeline.lake.lake import EVENTS, MARK, Lake
from wakupush.postgres import events as writing
from wakupush.postgres import exporting
from wakupush.postgres.backlog import ExportBacklog, export_backlog


def test_every_event_once_over_many_runs(spark, connection, dsn, make_settings):
    settings = make_settings(dsn, step_rows=300)
    first, second = make(120, seed=1), make(60, seed=2)
    happenings.write(connection, first)
    steps = []
    export_result = export.run(spark, settings, lambda count, total: steps.append((count, total)))
    assert export_result.rows == len(first)
    assert export_result.steps > 1
    assert steps[0] == (0, len(first))
    assert steps[-1] == (len(first), len(first))
    assert in_lake(spark, settings) == expected_rows(first)
    assert export_backlog(connection) == ExportBacklog(0.0, 0)
    assert export.run(spark, settings, ignore).rows == 0
    # Among them events of days that are in the lake already.
    happenings.write(connection, second)
    assert export_backlog(connection).rows > 0
    assert export.run(spark, settings, ignore).rows == len(second)
    assert in_lake(spark, settings) == expected_rows(first + second)


def test_what_names_a_user_cannot_be_joined_by_time(spark, connection, dsn, make_settings):
    """Not to messages of the network, nor to events that have their second and their message."""
    settings = make_settings(dsn)
    happenings.write(connection, make(200))
    export.run(spark, settings, ignore)
    events = events_of(spark, settings)
    of_users = events.where("user IS NOT NULL")
    assert of_users.select("kind").distinct().count() > 8
    assert of_users.where("minute(time) <> 0 OR second(time) <> 0").count() == 0
    assert of_users.where("trace IS NOT NULL OR worker IS NOT NULL OR batch_size IS NOT NULL").count() == 0
    assert {row.kind for row in of_users.where("latency_ms IS NOT NULL").select("kind").distinct().collect()} == {
        "delivered"
    }
    # Nor by the order of the rows.
    files = {}
    frame = Lake.of(spark, settings).spark.sql(
        f"SELECT _file, kind, user FROM {EVENTS} WHERE user IS NOT NULL ORDER BY _file, _pos"
    )
    for row in frame.collect():
        files.setdefault((row._file, row.kind), []).append(row.user)
    assert any(len(users) > 10 for users in files.values())
    assert all(users == sorted(users) for users in files.values())


def test_retention_hears_of_what_a_killed_run_took_over(spark, connection, dsn, make_settings):
    settings = make_settings(dsn)
    happenings.write(connection, make(10))
    assert export_backlog(connection) is None
    export.run(spark, settings, ignore)
    exporting.note_exported(connection, 0)  # it ended right after its commit to the lake
    assert export_backlog(connection).rows > 0
    assert export.run(spark, settings, ignore).rows == 0
    assert export_backlog(connection).rows == 0


def test_an_open_transaction_holds_back_what_follows(spark, connection, dsn, make_settings):
    settings = make_settings(dsn)
    early, late, after = (make(10, seed=seed) for seed in (1, 2, 3))
    happenings.write(connection, early)
    with psycopg.connect(dsn) as slow:
        writing.add(slow, late, IDENTITY)
        happenings.write(connection, after)
        assert export.run(spark, settings, ignore).rows == len(early)
        slow.commit()
    assert export.run(spark, settings, ignore).rows == len(late) + len(after)
    assert in_lake(spark, settings) == expected_rows(early + late + after)


def test_a_folder_alone_is_no_lake_to_export_into(spark, dsn, make_settings):
    with pytest.raises(PipelineError, match="an export needs a catalog"):
        export.run(spark, make_settings(dsn, catalog={"type": "hadoop"}), ignore)


def test_the_role_of_exports_is_enough(spark, connection, dsn, make_settings):
    happenings.write(connection, make(5))
    settings = make_settings(dsn.replace("postgres@", f"{Role.PIPELINE}@"))
    assert export.run(spark, settings, ignore).rows > 0


def test_events_of_a_newer_schema_are_not_taken_over(spark, connection, dsn, make_settings):
    happenings.write(connection, make(3))
    connection.execute("UPDATE delivery_events SET schema_version = 6")
    settings = make_settings(dsn)
    with pytest.raises(PipelineError, match="schema version 6"):
        export.run(spark, settings, ignore)
    assert Lake.of(spark, settings).state().snapshot is None


def remember(lake, mark):
    lake.spark.sql(f"ALTER TABLE {EVENTS} SET TBLPROPERTIES ('{MARK}' = '{mark.text}')")


def test_another_cluster_is_refused(spark, connection, dsn, make_settings):
    settings = make_settings(dsn)
    happenings.write(connection, make(10))
    export.run(spark, settings, ignore)
    lake = Lake.of(spark, settings)
    mark = lake.state().mark
    for changed in ({"source": "another"}, {"transaction": 1 << 60}, {"timeline": mark.timeline + 1}):
        remember(lake, replace(mark, **changed))
        with pytest.raises(PipelineError, match="another Postgres cluster"):
            export.run(spark, settings, ignore)
    # After a promotion that lost nothing the timeline is a later one.
    remember(lake, replace(mark, timeline=mark.timeline - 1))
    assert export.run(spark, settings, ignore).rows == 0


def test_restored_database_is_refused(spark, connection, dsn, make_settings):
    """The numbers of the transactions that were lost are given to others, which would seem to be in the lake."""
    settings = make_settings(dsn)
    happenings.write(connection, make(30))
    export.run(spark, settings, ignore)
    mark = Lake.of(spark, settings).state().mark
    last = mark.transaction - 1

    def is_lost():
        return export._is_lost(connection, last, mark.last_event)

    assert not is_lost()
    # Retention takes the older ones as well.
    for which, lost in (("TRUE", False), ("transaction_id = %s::text::xid8", True)):
        with connection.transaction(force_rollback=True):
            connection.execute(f"DELETE FROM delivery_events WHERE {which}", [last] if "%s" in which else [])
            assert is_lost() is lost
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
    with pytest.raises(PipelineError, match="permission denied for schema wakupush_lake"):
        export.run(spark, make_settings(dsn.replace("postgres@", "nobody@")), ignore)
    with pytest.raises(PipelineError, match="must not lie in the lake"):
        export.run(spark, make_settings(dsn, keys=tmp_path / "lake" / "keys"), ignore)
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="cannot be used"):
        export.run(spark, make_settings(dsn, keys=tmp_path / "file" / "keys"), ignore)


def test_a_lake_without_a_key_goes_on(spark, connection, dsn, make_settings):
    settings = make_settings(dsn)
    happenings.write(connection, make(5))
    export.run(spark, settings, ignore)
    shutil.rmtree(settings.pipeline.keys)
    more = make(5, seed=2)
    happenings.write(connection, more)
    assert export.run(spark, settings, ignore).rows == len(more)
