"""The lake: what is committed once, in which order rows lie, damaged files; pseudonyms that cannot be joined back."""

import hmac
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import pytest

from wakupush.model.events import period_of
from wakupush.pipeline import tidy
from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake import lake as lakes
from wakupush.pipeline.lake import schema
from wakupush.pipeline.lake.lake import EVENTS, Lake, LakeMark
from wakupush.pipeline.lake.pseudonyms import GRACE_DAYS, Keys, rehash

DAY = date(2026, 11, 3)
LATER = DAY + timedelta(days=1)


def mark(transaction):
    return LakeMark(source="one", timeline=1, transaction=transaction, last_event=None)


@pytest.fixture
def settings(make_settings, dsn):
    return make_settings(dsn)


@pytest.fixture
def lake(spark, settings):
    lake = Lake.of(spark, settings)
    lake.prepare()
    return lake


def frame(lake, rows):
    """Return events of (kind, day, attempt) and perhaps a user; everything else is empty."""
    values = [
        tuple(dict(zip(("kind", "day", "attempt", "user"), row, strict=False)).get(name) for name in schema.MEANINGS)
        for row in rows
    ]
    return lake.spark.createDataFrame(values, ", ".join(f"`{name}` {kind}" for name, kind in schema.EVENTS.items()))


def append(lake, rows, transaction=1):
    count, state = lake.append(frame(lake, rows), lake.state(), mark(transaction), len(rows))
    assert state == lake.state()
    return count


def attempts(lake):
    return sorted(row.attempt for row in lake.spark.table(EVENTS).collect())


def branches(lake):
    return {row.name for row in lake.spark.sql(f"SELECT name FROM {EVENTS}.refs").collect()} - {"main"}


def path_of(lake, day):
    [file] = lake.files(lakes.of_days(day, day))
    return file.path


def test_events_and_mark_are_one_commit(lake):
    assert lake.state().snapshot is None
    assert lake.sizes() == {}
    assert append(lake, [("attempt", DAY, 1), ("failed", DAY, 2)], transaction=7) == 2
    assert attempts(lake) == [1, 2]
    assert lake.state().mark == mark(7)
    assert lake.sizes() == {DAY: 2}
    assert branches(lake) == set()
    assert append(lake, [("attempt", DAY + timedelta(1), 3)], transaction=8) == 1
    assert attempts(lake) == [1, 2, 3]
    assert lake.state().mark == mark(8)


@pytest.mark.parametrize("first", [True, False], ids=["the first commit", "a later one"])
def test_one_of_two_concurrent_runs_commits(lake, first):
    if not first:
        append(lake, [("attempt", DAY, 0)])
    state = lake.state()
    append(lake, [("attempt", DAY, 1)], transaction=5)
    with pytest.raises(PipelineError, match="start"):
        lake.append(frame(lake, [("attempt", DAY, 2)]), state, mark(9))
    assert attempts(lake) == [1] if first else [0, 1]
    assert lake.state().mark == mark(5)


@pytest.mark.parametrize("other", ["an export", "compaction", "retention", "a property"])
def test_a_concurrent_commit_makes_a_commit_fail(lake, monkeypatch, other):
    """The run has found the lake as it was, and then sleeps until the other one is through."""
    append(lake, [("attempt", DAY, 1)])
    append(lake, [("attempt", DAY, 2)], transaction=2)
    state = lake.state()
    look = lakes._state
    others = {
        "an export": lambda: append(lake, [("attempt", DAY, 3)], transaction=3),
        "compaction": lambda: tidy._compact(lake, DAY + timedelta(1)),
        "retention": lambda: tidy._forget(lake, DAY + timedelta(1)),
        "a property": lambda: lake.spark.sql(f"ALTER TABLE {EVENTS} SET TBLPROPERTIES ('other' = '1')"),
    }

    def look_and_sleep(table):
        monkeypatch.setattr(lakes, "_state", look)
        table_state = look(table)
        others[other]()
        return table_state

    monkeypatch.setattr(lakes, "_state", look_and_sleep)
    with pytest.raises(PipelineError, match="the step was not committed"):
        lake.append(frame(lake, [("attempt", DAY, 9)]), state, mark(9))
    assert attempts(lake) == {"an export": [1, 2, 3], "retention": []}.get(other, [1, 2])
    assert lake.state().mark == mark(3 if other == "an export" else 2)
    assert len(branches(lake)) == 1
    # Who looks again goes on.
    append(lake, [("attempt", DAY, 4)], transaction=4)
    assert lake.state().mark == mark(4)


def test_incomplete_step_is_refused(lake):
    with pytest.raises(PipelineError, match="Postgres has 3 events of this step and 2 were written"):
        lake.append(frame(lake, [("attempt", DAY, 1), ("attempt", DAY, 2)]), lake.state(), mark(1), 3)
    assert lake.state().snapshot is None
    assert lake.state().mark is None


def test_rows_out_of_user_order_are_refused(lake):
    users = [bytes([number * 37 % 251]) * 16 for number in range(200)]
    assert users != sorted(users)
    rows = frame(lake, [("queried", DAY, 1, user) for user in users]).repartition(3)
    lake.append(rows, lake.state(), mark(1))
    lake_rows = lake.spark.sql(f"SELECT user FROM {EVENTS} ORDER BY _file, _pos").collect()
    assert [row.user for row in lake_rows] == sorted(users)
    lake.spark.sql(f"ALTER TABLE {EVENTS} WRITE UNORDERED")
    with pytest.raises(PipelineError, match="not in the order of users"):
        lake.append(rows, lake.state(), mark(2))
    assert lake.state().mark == mark(1)


def test_missing_columns_are_added_in_order(lake):
    lake.spark.sql(f"ALTER TABLE {EVENTS} DROP COLUMN count")
    lake.spark.sql(f"ALTER TABLE {EVENTS} WRITE UNORDERED")
    lake.prepare()
    assert set(lake.spark.table(EVENTS).columns) == set(schema.MEANINGS)
    assert not lake.table().sortOrder().isUnsorted()
    append(lake, [("attempt", DAY, 1)])
    assert attempts(lake) == [1]


def test_tables_and_columns_have_comments(lake):
    rows = {row.col_name: row.comment for row in lake.spark.sql(f"DESCRIBE {EVENTS}").collect()}
    assert {name: rows[name] for name in schema.MEANINGS} == schema.MEANINGS


@pytest.mark.parametrize("damage", ["cut off", "inside", "gone"])
def test_damaged_files_are_named_and_can_be_taken_out(spark, lake, settings, damage):
    append(lake, [("attempt", DAY, number, bytes([number]) * 16) for number in range(100)] + [("failed", LATER, 7)])
    broken = Path(path_of(lake, DAY).removeprefix("file:"))
    content = bytearray(broken.read_bytes())
    content[60:400:7] = bytes(byte ^ 0x55 for byte in content[60:400:7])
    broken.with_name(f".{broken.name}.crc").unlink()
    if damage == "gone":
        broken.unlink()
    else:
        broken.write_bytes(content[: len(content) // 2] if damage == "cut off" else content)
    with (
        pytest.raises(PipelineError, match=rf"damaged: .*{broken.name} \(100 events\)\. Restore"),
        lake.naming_damage(lakes.of_days(DAY, DAY)),
    ):
        lake.events().selectExpr("sum(hash(*) & 65535)").collect()
    with pytest.raises(PipelineError, match="is no file of the lake"):
        tidy.run(spark, settings, ["another.parquet"])
    result = tidy.run(spark, settings, [path_of(lake, DAY)])
    assert result.without == 100
    assert attempts(lake) == [7]
    assert lake.state().mark == mark(1)


def test_a_lake_with_partitions_by_kind_is_written_anew(spark, settings):
    lake = Lake.of(spark, settings)
    columns = dict(schema.EVENTS)
    lake.create(EVENTS, columns, "day, kind", "As a former version made it")
    old = [("attempt", DAY, 1, b"b" * 16), ("attempt", DAY, 2, b"a" * 16), ("failed", DAY, 3), ("failed", LATER, 4)]
    frame(lake, old).writeTo(EVENTS).append()
    assert len(lake.files()) == 3
    lake.prepare()
    lake.prepare()
    append(lake, [("failed", DAY, 5)])
    assert lake.sizes() == {DAY: 4, LATER: 1}
    # Files of the former partitions become one for each day, which the next run merges with the new ones.
    assert [tidy.run(spark, settings, []).compacted for _ in range(3)] == [3, 2, 0]
    assert [file.rows for file in lake.files()] in ([4, 1], [1, 4])
    assert attempts(lake) == [1, 2, 3, 4, 5]
    in_order = lake.spark.sql(f"SELECT attempt FROM {EVENTS} WHERE day = DATE '{DAY}' ORDER BY _pos").collect()
    assert [row.attempt for row in in_order][:2] == [2, 1]
    assert lake.spark.sql(f"SELECT DISTINCT spec_id FROM {EVENTS}.files").collect() == [(1,)]


def test_errors_without_damaged_files_are_unchanged(lake):
    append(lake, [("attempt", DAY, 1)])
    with pytest.raises(lakes.PySparkException), lake.naming_damage("true"):
        lake.events().selectExpr("1 / (attempt - 1)").collect()


def test_only_scanned_files_are_read_for_damage(lake, monkeypatch):
    append(lake, [("attempt", DAY, 1), ("failed", DAY, 1), ("attempt", LATER, 1)])
    Path(path_of(lake, LATER).removeprefix("file:")).unlink()
    paths = []
    is_whole = lakes._is_whole
    monkeypatch.setattr(lakes, "_is_whole", lambda store, path: paths.append(path) or is_whole(store, path))
    with pytest.raises(lakes.PySparkException), lake.naming_damage(lakes.of_days(DAY, DAY)):
        lake.events().where(f"day = DATE '{DAY}'").selectExpr("1 / (attempt - 1)").collect()
    assert paths == [path_of(lake, DAY)]


def test_tidy_looks_for_damage_where_it_merges(spark, lake, settings, monkeypatch):
    append(lake, [("attempt", DAY, 1), ("failed", LATER, 1)])
    append(lake, [("attempt", DAY, 2)], 2)
    pair = [file.path for file in lake.files(lakes.of_days(DAY, DAY))]
    for path in (pair[0], path_of(lake, LATER)):
        Path(path.removeprefix("file:")).unlink()
    paths = []
    is_whole = lakes._is_whole
    monkeypatch.setattr(lakes, "_is_whole", lambda store, path: paths.append(path) or is_whole(store, path))
    with pytest.raises(PipelineError, match=rf"damaged: {pair[0]} \(1 events\)\. Restore"):
        tidy.run(spark, settings, [])
    assert paths == pair


def test_pseudonyms_are_hmac_under_the_periods_key(spark):
    keys = {0: b"a" * 32, 1: b"b" * 32}
    days = [date(1970, 1, 1), date(1970, 1, 10), date(1970, 1, 11), date(1970, 1, 21)]
    rows = spark.createDataFrame([(day, "00ff", b"\x01" * 16) for day in days], "day DATE, trace_id STRING, key BINARY")
    pseudonym_frame = rehash(rows, keys, 10, {"trace_id": "trace", "key": "user"})
    by_day = {row.day: row for row in pseudonym_frame.collect()}
    for day, key in zip(days, [keys[0], keys[0], keys[1], None], strict=True):
        row = by_day[day]
        if key is None:
            assert (row.trace, row.user) == (None, None)
        else:
            assert row.trace == hmac.digest(key, b"trace" + b"00ff", "sha256")[:16]
            assert row.user == hmac.digest(key, b"user" + b"\x01" * 16, "sha256")[:16]
    plan = pseudonym_frame._jdf.queryExecution().toString()
    assert keys[0].hex() not in plan.lower()
    assert "aaaaaaaa" not in plan


def test_keys_last_for_their_period(tmp_path):
    keys = Keys(tmp_path / "keys", 7)
    begin = date(1970, 1, 1) + timedelta(days=7 * 2900)
    period_keys = keys.of([begin, begin + timedelta(days=6), begin + timedelta(days=7)], begin)
    assert set(period_keys) == {2900, 2901}
    assert period_keys[2900] != period_keys[2901]
    assert keys.of([begin], begin + timedelta(days=6)) == {2900: period_keys[2900]}
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "keys").iterdir())
    over = begin + timedelta(days=7 + GRACE_DAYS)
    assert keys.forget(over - timedelta(days=1)) == 0
    assert keys.forget(over) == 1
    # What comes later still gets no key again, so nothing can be joined to what is in the lake.
    assert keys.of([begin], over, lake_days=[begin + timedelta(days=1)]) == {}
    # Unless the lake has nothing of it: a key for this run alone, the same in each of its steps.
    passing = keys.of([begin], over)
    assert passing == keys.of([begin], over)
    assert passing[2900] not in period_keys.values()
    assert Keys(tmp_path / "keys", 7).of([begin], over) != passing
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["2901.key"]


def test_pseudonyms_of_events_change_with_the_keys(tmp_path):
    """Else a period of the lake would count its people twice."""
    for days in (1, 10, 28):
        keys = Keys(tmp_path, days)
        for day in (date(2026, 11, 25) + timedelta(days=number) for number in range(60)):
            begin = datetime.combine(day, time(), UTC).timestamp()
            assert {keys.period(day)} == {period_of(begin + second, days) for second in (0.0, 86_399.9)}


def test_a_broken_key_is_told(tmp_path):
    keys = Keys(tmp_path, 7)
    (tmp_path / "0.key").write_bytes(b"short")
    with pytest.raises(PipelineError, match=r"0\.key is no key"):
        keys.of([date(1970, 1, 2)], date(1970, 1, 2))
