"""A database with a million rows, as old as a server's after a year: no job and no message reads what it does not want.

Plans and rows are judged, not times: `make age` does the same with ten million users.
"""

import psycopg
import pytest

from benchmarks.age.fill import Size, fill
from benchmarks.age.run import Bystander, findings, run
from benchmarks.age.statements import Recorder
from benchmarks.age.work import every_work, processes
from wakupush.runtime.settings import RetentionSettings

SIZE = Size(users=50_000, expired=100_000, pending=30_000)


@pytest.fixture
def results(dsn, open_server, postgres):
    fill(dsn, SIZE)
    settings, recorder = open_server().context.settings, Recorder()
    bystander = Bystander(dsn, postgres.log)
    with processes(settings, recorder) as contexts, psycopg.connect(dsn, autocommit=True) as connection:
        return [run(work, recorder, connection, bystander.longest) for work in every_work(contexts, SIZE)]


def test_no_statement_reads_more_than_it_wants(results):
    assert not [result.failure for result in results if result.failure]
    large_reads = [finding for result in results for finding in findings(result.statements, with_times=False)]
    assert not large_reads
    worked = {result.work.name for result in results if result.rows}
    assert {"first registrations", "queries", "push requests", "next attempts", "claim_due"} <= worked
    assert {"prune: deliveries", "prune: dead_letters", "prune: topics"} <= worked


def test_events_are_as_old_as_retention_lets_them(dsn):
    fill(dsn, Size(users=1_000, expired=0, pending=0), ("delivery_events",))
    with psycopg.connect(dsn) as connection:
        [(seconds,)] = connection.execute("SELECT extract(epoch FROM now() - min(time))::float8 FROM delivery_events")
    assert seconds == pytest.approx(RetentionSettings().events, abs=60)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*) FROM deliveries WHERE trace_id = 'x'", "reads all of deliveries"),
        ("SELECT FROM registrations ORDER BY key_hash OFFSET 8000 LIMIT 1", "reads 8,001 rows for 1"),
    ],
)
def test_a_statement_that_reads_too_much_is_found(dsn, query, expected):
    fill(dsn, Size(users=30_000, expired=30_000, pending=0), ("registrations", "expired"))
    recorder = Recorder()
    with psycopg.connect(dsn) as connection:
        recorder.watch(connection)
        connection.execute(query)
    [finding] = findings(recorder.statements, with_times=False)
    assert expected in finding
