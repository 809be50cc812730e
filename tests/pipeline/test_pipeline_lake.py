"""The lake: commits, versions of the schema, compaction, and pseudonyms that cannot be joined back."""

import hmac
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from pipeline import schema
from pipeline.errors import PipelineError
from pipeline.lake import EMPTY, SNAPSHOTS_KEPT, Lake
from pipeline.pseudonyms import GRACE_DAYS, Keys, rehash

DAY = date(2026, 11, 3)


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "lake")


def frame(spark, rows, version=schema.VERSION):
    """Return events of (kind, day, attempt); everything else is empty."""
    columns = schema.written(version)
    values = [
        tuple({"kind": kind, "day": day, "attempt": attempt}.get(name) for name in columns.fieldNames())
        for kind, day, attempt in rows
    ]
    return spark.createDataFrame(values, columns)


def commit(lake, files, **changes):
    snapshot = lake.latest()
    lake.commit(replace(snapshot, number=snapshot.number + 1, files=snapshot.files + files, **changes))
    return lake.latest()


def attempts(spark, lake):
    return sorted(row.attempt for row in lake.read(spark, lake.latest().files).collect())


def test_what_is_not_committed_is_not_there(spark, lake):
    assert lake.latest() == EMPTY
    files = lake.write(frame(spark, [("attempt", DAY, 1), ("failed", DAY, 2)]))
    assert {(file.kind, file.day, file.rows, file.version) for file in files} == {
        ("attempt", DAY, 1, schema.VERSION),
        ("failed", DAY, 1, schema.VERSION),
    }
    assert attempts(spark, lake) == []
    commit(lake, files, watermark=7)
    assert attempts(spark, lake) == [1, 2]
    assert lake.latest().watermark == 7


def test_only_one_of_two_commits_of_a_number_counts(spark, lake):
    snapshot = commit(lake, lake.write(frame(spark, [("attempt", DAY, 1)])))
    with pytest.raises(PipelineError, match="another run has committed"):
        lake.commit(replace(snapshot, watermark=99))
    assert lake.latest() == snapshot
    assert [path.name for path in (lake.folder / "log").iterdir()] == ["0000000001.json"]


def test_a_log_that_cannot_be_read_is_told(lake):
    (lake.folder / "log").mkdir(parents=True)
    (lake.folder / "log" / "0000000003.json").write_text("{")
    with pytest.raises(PipelineError, match=r"0000000003\.json cannot be read"):
        lake.latest()


@pytest.mark.parametrize(
    ("version", "times"),
    [(1, {"queue_wait": 0.123, "latency": 1.5}), (2, {"queue_wait_ms": 123, "latency_ms": 1500})],
)
def test_old_versions_are_read_together_with_the_present_one(spark, lake, version, times):
    moment = datetime(2026, 11, 3, 12, 34, 56, tzinfo=UTC)
    columns = schema.written(version)
    old = spark.createDataFrame(
        [
            tuple((values | {"time": moment, "trace": b"t", "day": DAY}).get(name) for name in columns.fieldNames())
            for values in ({"kind": "foreign"} | times, {"kind": "queried", "user": b"u"} | times)
        ],
        columns,
    )
    commit(lake, lake.write(old, version=version))
    commit(lake, lake.write(frame(spark, [("attempt", DAY, 1)])))

    def check():
        rows = {row.kind: row for row in lake.read(spark, lake.latest().files).collect()}
        foreign, queried = rows["foreign"], rows["queried"]
        assert (foreign.queue_wait_ms, foreign.latency_ms, foreign.trace) == (123, 1500, b"t")
        assert (queried.queue_wait_ms, queried.latency_ms, queried.trace, queried.user) == (123, None, None, b"u")
        assert (foreign.time - queried.time).seconds == 34 * 60 + 56
        assert rows["attempt"].attempt == 1

    check()
    # Compaction writes it anew in the present version, also where there is nothing to put together.
    snapshot, damaged = lake.compact(spark, DAY)
    assert not damaged
    assert [file.version for file in snapshot.files] == [schema.VERSION] * 3
    check()


def test_a_newer_version_is_refused(spark, lake):
    [file] = lake.write(frame(spark, [("attempt", DAY, 1)]))
    commit(lake, (replace(file, version=schema.VERSION + 1),))
    with pytest.raises(PipelineError, match="update wakupush"):
        lake.read(spark, lake.latest().files)


def test_compaction_keeps_every_row_and_the_files_until_nobody_reads_them(spark, lake):
    for number in range(3):
        commit(lake, lake.write(frame(spark, [("attempt", DAY, number), ("attempt", DAY + timedelta(days=1), 10)])))
    before = lake.latest()
    snapshot, damaged = lake.compact(spark, DAY + timedelta(days=1))
    assert not damaged
    assert [(file.day, file.rows) for file in snapshot.files if file.day == DAY] == [(DAY, 3)]
    assert len(snapshot.of(DAY + timedelta(days=1), DAY + timedelta(days=9))) == 3, "the day is not over"
    assert attempts(spark, lake) == [0, 1, 2, 10, 10, 10]
    assert lake.sweep() == 0
    assert lake.read(spark, before.files).count() == 6
    assert lake.sweep(grace=-1) == 3
    assert attempts(spark, lake) == [0, 1, 2, 10, 10, 10]


@pytest.mark.parametrize("damage", ["cut off", "inside"])
def test_damaged_files_are_left_alone_by_compaction(spark, lake, damage):
    other = DAY + timedelta(days=1)
    for number in range(2):
        commit(lake, lake.write(frame(spark, [("attempt", DAY, number), ("failed", DAY, 2), ("attempt", other, 3)])))
    broken = next(file for file in lake.latest().files if (file.day, file.kind) == (DAY, "attempt"))
    path = lake.folder / broken.path
    content = bytearray(path.read_bytes())
    path.write_bytes(b"PAR1" if damage == "cut off" else content[:8] + bytes(60) + content[68:])
    path.with_name(f".{path.name}.crc").unlink()
    snapshot, damaged = lake.compact(spark, other + timedelta(days=1))
    assert damaged == (broken,)
    assert snapshot == lake.latest()
    # What is beside it, and what is not.
    assert [file.rows for file in snapshot.files if (file.day, file.kind) == (DAY, "attempt")] == [1, 1]
    assert [file.rows for file in snapshot.files if (file.day, file.kind) != (DAY, "attempt")] == [2, 2]


def test_compaction_takes_as_many_events_together_as_it_may(spark, lake, monkeypatch):
    days = [DAY + timedelta(days=offset) for offset in range(4)]
    for _ in range(2):
        commit(lake, lake.write(frame(spark, [("attempt", day, 1) for day in days])))
    number = lake.latest().number
    monkeypatch.setattr("pipeline.lake.MOST_ROWS", 5)
    snapshot, _ = lake.compact(spark, days[-1] + timedelta(days=1))
    assert [(file.day, file.rows) for file in sorted(snapshot.files, key=lambda file: file.day)] == [
        (day, 2) for day in days
    ]
    assert snapshot.number == number + 2, "two days at a time"


def test_only_so_many_snapshots_are_kept(lake):
    for _ in range(SNAPSHOTS_KEPT + 3):
        commit(lake, ())
    lake.sweep()
    assert len(list((lake.folder / "log").glob("*.json"))) == SNAPSHOTS_KEPT
    assert lake.latest().number == SNAPSHOTS_KEPT + 3


def test_pseudonyms_are_hmac_under_the_key_of_their_period(spark):
    keys = {0: b"a" * 32, 1: b"b" * 32}
    days = [date(1970, 1, 1), date(1970, 1, 10), date(1970, 1, 11), date(1970, 1, 21)]
    rows = spark.createDataFrame([(day, "00ff", b"\x01" * 16) for day in days], "day DATE, trace_id STRING, key BINARY")
    found = rehash(rows, keys, 10, {"trace_id": "trace", "key": "user"})
    by_day = {row.day: row for row in found.collect()}
    for day, key in zip(days, [keys[0], keys[0], keys[1], None], strict=True):
        row = by_day[day]
        if key is None:
            assert (row.trace, row.user) == (None, None)
        else:
            assert row.trace == hmac.digest(key, b"trace" + b"00ff", "sha256")[:16]
            assert row.user == hmac.digest(key, b"user" + b"\x01" * 16, "sha256")[:16]
    plan = found._jdf.queryExecution().toString()
    assert keys[0].hex() not in plan.lower()
    assert "aaaaaaaa" not in plan


def test_keys_last_for_their_period_and_are_gone_after_it(tmp_path):
    keys = Keys(tmp_path / "keys", 7)
    begin = date(1970, 1, 1) + timedelta(days=7 * 2900)
    made = keys.of([begin, begin + timedelta(days=6), begin + timedelta(days=7)], begin)
    assert set(made) == {2900, 2901}
    assert made[2900] != made[2901]
    assert keys.of([begin], begin + timedelta(days=6)) == {2900: made[2900]}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "keys").iterdir())
    over = begin + timedelta(days=7 + GRACE_DAYS)
    assert keys.forget(over - timedelta(days=1)) == 0
    assert keys.forget(over) == 1
    # What comes later still gets no key again, so nothing can be joined to what is in the lake.
    assert keys.of([begin], over, known=frozenset({2900})) == {}
    # Unless the lake has nothing of it: a key for this run alone, the same in each of its steps.
    passing = keys.of([begin], over)
    assert passing == keys.of([begin], over)
    assert passing[2900] not in made.values()
    assert Keys(tmp_path / "keys", 7).of([begin], over) != passing
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["2901.key"]


def test_a_broken_key_is_told(tmp_path):
    keys = Keys(tmp_path, 7)
    (tmp_path / "0.key").write_bytes(b"short")
    with pytest.raises(PipelineError, match=r"0\.key is no key"):
        keys.of([date(1970, 1, 2)], date(1970, 1, 2))
