"""The sums of `make attack`: what is stored, and what memory was needed, on real parts and of known sizes."""

import sys
import time
from secrets import token_bytes

import psutil
import pytest

from benchmarks.attack.machine import Peaks, Share, used_by_all, used_by_others
from benchmarks.attack.stored import Stored
from benchmarks.running import cpu_of
from wakupush.devnet.processes import Process, wait_until

ROWS, BYTES = 2000, 500
MIB = 2**20


@pytest.fixture
def measure(connection, redis):
    """Return what says how much is stored more than at the beginning of the test."""
    connection.execute("CREATE TABLE things (thing bytea)")
    connection.execute("CREATE TABLE parts (day int, thing bytea) PARTITION BY RANGE (day)")
    connection.execute("CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (1)")
    connection.execute("CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (1) TO (2)")
    before = Stored.now(connection, redis)
    return lambda: Stored.now(connection, redis).since(before)


def fill(connection, table, rows):
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def test_sizes_include_indexes_toast_and_partitions(connection, measure):
    assert (measure().rows, measure().bytes) == ({}, {})
    connection.execute("CREATE INDEX ON things (thing)")
    index_bytes = measure().bytes["things"]
    fill(connection, "parts", ((number % 2, token_bytes(20_000)) for number in range(100)))
    fill(connection, "things", ((token_bytes(BYTES),) for _ in range(ROWS)))
    growth = measure()
    assert growth.rows == {"things": ROWS, "parts": 100}
    assert 100 * 20_000 < growth.bytes["parts"] < 100 * 20_000 * 1.2
    assert growth.bytes["things"] - index_bytes > 2 * ROWS * BYTES


def test_what_is_deleted_is_not_stored(connection, measure):
    fill(connection, "things", ((token_bytes(BYTES),) for _ in range(ROWS)))
    connection.execute("DELETE FROM things")
    growth = measure()
    assert (growth.rows, growth.bytes) == ({}, {})


def test_what_redis_keeps_counts(redis, measure):
    redis.set("thing", bytes(MIB))
    assert 0.9 * MIB <= measure().redis < 2.5 * MIB  # what its allocator has or takes besides is a part of that
    redis.delete("thing")
    # The connection's buffer has as many bytes until Redis shrinks it.
    wait_until(lambda: measure().redis < MIB / 2, timeout=60, what="what is deleted is not counted")


NEEDS = """
import pathlib, sys, time
while not pathlib.Path(sys.argv[1], "begin").exists(): time.sleep(0.01)
needed = b"1" * (100 * 2**20)
del needed
pathlib.Path(sys.argv[1], "end").touch()
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the mark of the highest is Linux' own")
def test_memory_that_was_needed_for_a_moment_counts(tmp_path):
    with Process("needs", [sys.executable, "-c", NEEDS, str(tmp_path)], log=tmp_path / "log") as process:
        peaks = Peaks({"ingest": process})
        assert peaks.growth(["ingest"]) < 50 * MIB
        (tmp_path / "begin").touch()
        wait_until((tmp_path / "end").exists, timeout=60, what="memory was needed")
        assert 90 * MIB < peaks.growth(["ingest"]) < 150 * MIB
        assert 0.9 < peaks.shares({"ingest": 100 * MIB})["ingest"] < 1.5


BURNS = """
import time
while time.process_time() < 1: pass
time.sleep(600)
"""


def test_what_we_started_is_not_the_work_of_others(tmp_path):
    with Process("burns", [sys.executable, "-c", BURNS], log=tmp_path / "log") as process:
        burns = psutil.Process(process.pid)
        start_time, before = time.monotonic(), cpu_of(burns)
        busy, others = Share(used_by_all), Share(used_by_others)
        wait_until(lambda: cpu_of(burns) >= 0.9, timeout=60, what="a second was burnt")
        theirs, ours = cpu_of(burns) - before, busy.share() - others.share()
    assert ours * (time.monotonic() - start_time) * psutil.cpu_count() >= theirs - 0.2  # their clocks tick every 10 ms
