"""What reports keep of days is what a report makes from nothing, however days came, came late and went."""

import random

import pytest

from support.pipeline import happenings
from support.pipeline.happenings import DAYS, FIRST, LAST, kept_from, pseudonym, seconds
from wakupush.model.events import Event, EventKind
from wakupush.pipeline import tidy
from wakupush.pipeline.lake import export
from wakupush.pipeline.lake.lake import Lake
from wakupush.pipeline.report import report, state
from wakupush.runtime.settings import CANARY

#: Days of a period of pseudonyms: those of the tests are in two or three.
PERIOD = 3


@pytest.fixture
def settings(make_settings, dsn):
    return make_settings(dsn, pseudonym_days=PERIOD, smallest_cell=2)


@pytest.fixture
def add(spark, connection, settings):
    """Let things happen on some days, and export them."""
    seeds = iter(range(1000))

    def happen(*days, messages=12):
        happenings.write(connection, happenings.make(messages, next(seeds), days=days))
        export.run(spark, settings, lambda *_: None)

    return happen


@pytest.fixture
def count_rows(spark, settings):
    """Return the rows of all tables, and how many days were made for them."""

    def rows_and_count(**options):
        totals = []
        lake = Lake.of(spark, settings)
        rows = state.rows(lake, FIRST, LAST, PERIOD, lambda _, total: totals.append(total), **options)
        return {name: sorted(of_table, key=repr) for name, of_table in rows.items()}, totals[0]

    return rows_and_count


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_kept_rows_are_those_of_a_rebuild(spark, settings, add, count_rows, seed):
    chance = random.Random(seed)
    there = set()
    for day in chance.sample(DAYS, len(DAYS)):
        days = {day, *chance.sample(sorted(there), min(1, len(there)))}
        add(*days)
        there |= days
        assert count_rows()[1] == len(days)
    tidy.run(spark, settings, [])
    assert count_rows()[1] == 0, "files put together are no new events"
    add(DAYS[1])
    retention = settings.retention.model_copy(update={"lake": kept_from(DAYS[1])})
    tidy.run(spark, settings.model_copy(update={"retention": retention}), [])
    rows, count = count_rows()
    assert count == 1
    assert {row["day"] for row in rows["funnel_daily"]} == set(DAYS[1:])
    again, count = count_rows(rebuild=True)
    assert count == len(DAYS) - 1
    assert rows == again
    assert rows["registrations_used"]
    assert sum(map(len, rows.values())) > 100


@pytest.fixture
def push_to_canary(spark, connection, settings):
    """Let a push reach the canary on a day, and export that."""

    def push(day):
        it = {"key_pseudonym": pseudonym("it"), "installation_pseudonym": pseudonym("its device"), "platform": "ios"}
        common = it | {"queue": "dispatch", "app": CANARY, "push_type": "message", "latency": 0.1, "trace_id": "c3"}
        noon = seconds(day) + 43_200
        kinds = ((EventKind.ADMITTED, None), (EventKind.ATTEMPT, 1), (EventKind.DELIVERED, 1))
        pushes = [Event(kind=kind, time=noon, worker="one:1", attempt=attempt, **common) for kind, attempt in kinds]
        happenings.write(connection, pushes)
        export.run(spark, settings, lambda *_: None)

    return push


def test_pushes_to_the_canary_count_nowhere(add, count_rows, push_to_canary):
    add(*DAYS)
    before, _ = count_rows()
    push_to_canary(DAYS[0])
    after, days = count_rows()
    assert days == 1, "the day has new events"
    assert after == before


def test_days_and_periods_without_rows_are_made_once(add, count_rows, push_to_canary, monkeypatch):
    add(DAYS[0])
    push_to_canary(DAYS[-1])
    before, days = count_rows()
    assert days == 2
    assert {row["day"] for row in before["funnel_daily"]} == {DAYS[0]}
    monkeypatch.setattr(state, "_make_period", lambda *_: pytest.fail("a period is made again"))
    assert count_rows() == (before, 0)


def test_a_report_that_was_killed_continues(spark, settings, add, count_rows, monkeypatch):
    add(*DAYS[:2])
    monkeypatch.setattr(state, "EVENTS_AT_ONCE", 1)

    def die(day_count, _):
        if day_count == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        report.run(spark, settings, FIRST, LAST, die)
    rows, count = count_rows()
    assert count == 1
    assert rows == count_rows(rebuild=True)[0]


def test_a_file_that_was_taken_out_counts_no_more(spark, settings, add, count_rows):
    add(DAYS[0])
    add(DAYS[0])
    before, _ = count_rows()
    lake = Lake.of(spark, settings)
    tidy.run(spark, settings, [lake.files()[0].path])
    assert count_rows()[1] == 1
    rows, _ = count_rows()
    assert rows != before
    assert rows == count_rows(rebuild=True)[0]
    state.discard(lake, [DAYS[0]])
    assert lake.spark.table(state.ROWS).where("span = 'period'").count() == 0, "their devices may be others, too"
    assert count_rows()[1] == 1
