"""A lake of the old form is taken over once, exactly, whenever a run is killed, and exports go on where it ended."""

import json
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest
from pyarrow import parquet

from pipeline.errors import PipelineError
from pipeline.events import export, old_lake, schema
from pipeline.events.lake import EVENTS, MIGRATED, Lake
from support.pipeline import happenings
from support.pipeline.exported import expected, in_lake, make

DAY = date(2026, 11, 3)
MOMENT = datetime(2026, 11, 3, 12, 34, 56, tzinfo=UTC)
PLAIN = {
    "time": pa.timestamp("us", "UTC"),
    **dict.fromkeys(("queue", "platform", "failure", "reason"), pa.string()),
    **dict.fromkeys(("attempt", "batch_size"), pa.int32()),
    "worker": pa.string(),
    **dict.fromkeys(("trace", "user", "installation"), pa.binary()),
}
WAITS = dict.fromkeys(("queue_wait_ms", "latency_ms"), pa.int64())
COLUMNS = {
    1: PLAIN | dict.fromkeys(("queue_wait", "latency"), pa.float32()),
    2: PLAIN | WAITS,
    3: PLAIN | WAITS,
    4: PLAIN | WAITS | {"count": pa.int32()},
}


def ignore(*_):
    pass


def write(folder, rows, version=4):
    """Write rows as the old lake did, a file for each day and kind; return what its log says of them."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["day"], row["kind"]].append(row)
    files = []
    for (day, kind), found in groups.items():
        path = f"events/batch=b{version}/day={day}/kind={kind}/part-0.parquet"
        (folder / path).parent.mkdir(parents=True)
        columns = COLUMNS[version]
        arrays = {name: pa.array([row.get(name) for row in found], kind) for name, kind in columns.items()}
        parquet.write_table(pa.table(arrays), folder / path)
        size = (folder / path).stat().st_size
        told = {"path": path, "day": str(day), "kind": kind, "rows": len(found), "bytes": size, "version": version}
        files.append(told)
    return files


def commit(folder, files, number=1, **mark):
    (folder / "log").mkdir(exist_ok=True)
    content = {"number": number, "source": "one", "watermark": 7, "last_event": None, "files": files} | mark
    (folder / "log" / f"{number:010}.json").write_text(json.dumps(content))


@pytest.mark.long
def test_a_lake_is_taken_over_once_and_exports_go_on(spark, connection, dsn, make_settings, tmp_path):
    settings = make_settings(dsn, step_rows=100)
    first, second = make(120, seed=1), make(40, seed=2)
    happenings.write(connection, first)
    export.run(spark, settings, ignore)
    lake = Lake.of(spark, settings)
    mark = lake.state().mark
    old = tmp_path / "old"
    files = write(old, [row.asDict() for row in lake.events().collect()])
    commit(old, files[:1], number=4)
    commit(old, files, number=5, source=mark.source, watermark=mark.transaction, last_event=mark.last_event)
    lake.spark.sql(f"DROP TABLE {EVENTS} PURGE")

    class Killed(Exception):
        pass

    def killed(done, total):
        assert total == len(first)
        if done:
            raise Killed

    with pytest.raises(Killed):
        old_lake.run(spark, settings, old, killed)
    begun = sum(in_lake(spark, settings).values())
    assert 0 < begun < len(first)
    with pytest.raises(PipelineError, match="run `wakupush pipeline migrate-lake` again"):
        export.run(spark, settings, ignore)
    told = []
    assert old_lake.run(spark, settings, old, lambda *each: told.append(each)) == len(first) - begun
    assert told[-1] == (len(first) - begun, len(first) - begun)
    assert in_lake(spark, settings) == expected(first)
    with pytest.raises(PipelineError, match="all of the old one already"):
        old_lake.run(spark, settings, old, ignore)
    happenings.write(connection, second)
    assert export.run(spark, settings, ignore).rows == len(second)
    assert in_lake(spark, settings) == expected(first + second)


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_each_version_is_read_as_what_it_meant(spark, dsn, make_settings, tmp_path, version):
    waits = {"queue_wait": 0.123, "latency": 1.5, "queue_wait_ms": 123, "latency_ms": 1500}
    common = {"day": DAY, "time": MOMENT, "trace": b"t", "count": 3} | waits
    rows = [common | {"kind": "foreign"}, common | {"kind": "queried", "user": b"u"}]
    old = tmp_path / "old"
    commit(old, write(old, rows, version))
    settings = make_settings(dsn)
    assert old_lake.run(spark, settings, old, ignore) == 2
    found = {row.kind: row for row in Lake.of(spark, settings).events().collect()}
    foreign, queried = found["foreign"], found["queried"]
    assert foreign.asDict().keys() == schema.MEANINGS.keys()
    assert (foreign.queue_wait_ms, foreign.latency_ms, foreign.trace, foreign.day) == (123, 1500, b"t", DAY)
    if version < 3:
        assert (queried.queue_wait_ms, queried.latency_ms, queried.trace, queried.user) == (123, None, None, b"u")
        assert (foreign.time - queried.time) == timedelta(minutes=34, seconds=56)
    assert foreign["count"] == queried["count"] == (3 if version == 4 else 1)


def test_what_cannot_be_taken_over_is_told(spark, dsn, make_settings, tmp_path):
    settings = make_settings(dsn)
    old = tmp_path / "old"
    row = {"day": DAY, "time": MOMENT, "kind": "foreign", "count": 1}

    def refused(text):
        with pytest.raises(PipelineError, match=text):
            old_lake.run(spark, settings, old, ignore)

    refused("is no lake of the old form")
    [file] = write(old, [row])
    commit(old, [])
    refused("has no events")
    (old / "log" / "0000000002.json").write_text("{")
    refused(r"0000000002\.json cannot be read")
    commit(old, [file | {"version": 5}], number=3)
    refused("update wakupush")
    commit(old, [file | {"rows": 2}], number=4)
    refused("2 events of this step and 1 were written")
    commit(old, [file, file | {"path": file["path"].replace("part-0", "part-1")}], number=5)
    refused("cannot be read")
    # The old lake has changed since its first days were taken over.
    lake = Lake.of(spark, settings)
    begun = json.dumps({"snapshot": 5, "day": str(DAY - timedelta(1))})
    lake.spark.sql(f"ALTER TABLE {EVENTS} SET TBLPROPERTIES ('{MIGRATED}' = '{begun}')")
    commit(old, [file], number=6)
    refused("is another one than that")
    assert lake.state().snapshot is None
