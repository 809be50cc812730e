"""The capacity model: what it plays is counted by hand, and its plans hold on the half that it did not see."""

import json
from collections import Counter
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.loads import LOADS, Measured
from support.pipeline import happenings
from support.pipeline.happenings import FIRST, LAST, day_of, ignore
from wakupush.model.queues import QUEUES
from wakupush.pipeline import capacity
from wakupush.pipeline.capacity import CONCURRENCY, USE, Load, Question, enough, play, values
from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake import export
from wakupush.pipeline.lake.lake import Lake
from wakupush.pipeline.synthetic import made_up, synthesize


def question(**changes):
    return Question(
        **(
            {"wait": 0.25, "users": 1.0, "gorush": 0.05, "costs": capacity.COSTS}
            | {"connections": 16, "notifications": 50}
            | changes
        )
    )


def load(*messages, cost=0.001, posts=0.0, times=None):
    """Return so many messages in each second from 0 on, or at these times."""
    counts = np.array(messages, dtype=float)
    times = np.arange(len(counts)) if times is None else np.array(times)
    return Load(time=times.astype(float), messages=counts, work=counts * cost, posts=np.full(len(counts), posts))


@given(
    st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 9), st.integers(1, 20)), min_size=1, max_size=50),
    st.floats(0.0, 400.0),
    st.floats(0.001, 2.0),
    st.integers(1, 400),
)
def test_arrays_give_what_second_after_second_gives(seconds, posts, gorush, batch):
    """Messages, the seconds until the next ones, and the processes."""
    messages, gaps, processes = (np.array(column) for column in zip(*seconds, strict=True))
    times = np.cumsum(gaps)
    parameters = question(gorush=gorush)
    backlog = posting = 0.0
    expected = []
    for place, (count, gap, running) in enumerate(zip(messages, gaps, processes, strict=True)):
        if place:
            backlog = max(0.0, backlog - USE * running * gap)
            posting = max(0.0, posting - parameters.connections * running * gap)
        for part in (0.125, 0.375, 0.625, 0.875):
            of_work = (backlog + part * count * 0.001) / (USE * running)
            of_posts = (posting + part * posts / batch * gorush) / (parameters.connections * running)
            expected.append((count / 4, max(of_work, of_posts)))
        backlog += count * 0.001
        posting += posts / batch * gorush
    waits = play(load(*messages, posts=posts, times=times), processes, parameters, batch)
    pairs = sorted(zip(waits.messages, waits.seconds, strict=True))
    assert np.array(pairs) == pytest.approx(np.array(sorted(expected)), abs=0.001)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=50), st.floats(0.05, 2))
def test_enough_is_the_least_that_is_enough(messages, wait):
    parameters = question(wait=wait)
    count = enough(load(*messages), parameters, 1)
    assert play(load(*messages), count, parameters, 1).p99 <= wait
    assert count == 1 or play(load(*messages), count - 1, parameters, 1).p99 > wait


def test_unreachable_latency_has_no_process_count():
    with pytest.raises(PipelineError, match="more than"):
        enough(load(1e9), question(wait=0.01), 1)


def test_hours_of_the_week():
    monday = int(happenings.seconds(date(2026, 11, 16)))
    times = np.array([monday, monday + 3600 * 167 + 3599], dtype=float)
    assert capacity.hours_of_week(times).tolist() == [0, 167]
    assert capacity._epoch(date(2026, 11, 16)) == monday


def test_messages_of_each_queue_have_a_cost():
    assert capacity.COSTS.keys() >= QUEUES.keys()


def test_costs_are_read():
    assert capacity.costs(None, ["dispatch=2.5"])["dispatch"] == 0.0025
    for wrong in ("dispatch", "other=1", "dispatch=-1", "dispatch=nan", "dispatch=x"):
        with pytest.raises(PipelineError, match="NAME=MILLISECONDS"):
            capacity.costs(None, [wrong])


def test_costs_of_a_benchmark_are_those_of_its_workers(tmp_path):
    assert set(capacity.BENCH_LOADS.values()) <= {load.name for load in LOADS}
    figures = tmp_path / "bench.json"
    runs = [
        Measured(cpu={"worker query": micros, "worker dispatch": 100.0, "postgres": 50.0})
        for micros in (900.0, 400.0, 300.0)
    ]
    figures.write_text(json.dumps({"queries of one key, 1": [asdict(run) for run in runs]}))
    assert capacity.costs(figures, ["again=1"]) == capacity.COSTS | {"query": 0.0005, "again": 0.001}
    for wrong in ("[]", "{}", '{"queries of one key, 1": [{}]}', '{"queries of one key, 1": []}', "x"):
        figures.write_text(wrong)
        with pytest.raises(PipelineError, match="these are not figures of"):
            capacity.costs(figures, [])
    with pytest.raises(PipelineError, match="No such file"):
        capacity.costs(tmp_path / "none", [])


def test_load_is_that_of_a_plain_count(spark, connection, dsn, make_settings):
    events = happenings.make(150)
    happenings.write(connection, events)
    settings = make_settings(dsn)
    export.run(spark, settings, ignore)
    frame = Lake.of(spark, settings).events()
    for queue in ("registration", "query", "dispatch"):
        expected: dict[int, list[int]] = {}
        for event in events:
            if event.queue != queue or event.kind not in {"received", "foreign"}:
                continue
            wait = event.queue_wait if event.kind == "received" else event.latency
            arrived = int(event.time) - int(round(1000 * wait) / 1000 + 0.5)
            row = expected.setdefault(arrived, [0, 0, 0, 0, 0])
            row[0] += event.count * (event.kind == "received")
            row[1] += event.count * (event.kind == "foreign")
            row[4] += event.count * event.batch_size if event.kind == "received" else 0
        # Attempts of an hour are shared out among its messages.
        messages = Counter()
        for arrived, row in expected.items():
            messages[arrived // 3600] += row[0]
        attempts = [event for event in events if event.kind == "attempt" and event.queue == queue]
        attempt_counts = Counter(int(event.time) // 3600 for event in attempts)
        again = Counter(int(event.time) // 3600 for event in attempts if event.attempt > 1)
        for arrived, row in expected.items():
            if row[0]:
                hour = arrived // 3600
                row[2:4] = [row[0] * counted[hour] / messages[hour] for counted in (attempt_counts, again)]
        loaded_rows = {row.second: [*row[1:5], row.batches or 0] for row in capacity.load(frame, queue).collect()}
        assert loaded_rows.keys() == expected.keys()
        assert all(loaded_rows[second] == pytest.approx(row) for second, row in expected.items())
        assert expected
    assert {day_of(event) for event in events} <= {FIRST + timedelta(days=offset) for offset in range(5)}


def test_an_hour_without_a_message_has_no_attempts(spark):
    """The hour 1 has what is not for us alone, the hour 2 nothing that arrived."""
    columns = (
        "queue string, kind string, time timestamp, queue_wait_ms long, latency_ms long, batch_size int, attempt int,"
        " count int"
    )
    kinds_and_times = [
        (kind, datetime.fromtimestamp(3600 * hour, UTC))
        for kind, hour in [("received", 0), ("attempt", 0), ("foreign", 1), ("attempt", 1), ("attempt", 2)]
    ]
    rows = [("dispatch", kind, time, 0, 0, 1, 1, 1) for kind, time in kinds_and_times]
    loaded = capacity.load(spark.createDataFrame(rows, columns), "dispatch").orderBy("second").collect()
    assert [(row.second, row.messages, row.foreign, row.attempts) for row in loaded] == [(0, 1, 0, 1), (3600, 0, 1, 0)]


@pytest.fixture(scope="module")
def synthetic_lake(spark, tmp_path_factory):
    from wakupush.runtime.settings import PipelineSettings, Settings  # noqa: PLC0415 - of this fixture alone

    folder = tmp_path_factory.mktemp("made")
    settings = Settings(
        pipeline=PipelineSettings(
            warehouse=str(folder / "lake"),
            catalog={"type": "hadoop"},
            keys=folder / "keys",
            shuffle_partitions=2,
            step_rows=1,
        )
    )
    plan = synthesize.Plan(seed=7, messages=6000, first_day=date(2026, 10, 26), days=14)
    count = made_up.into_lake(spark, settings, plan)
    return settings, plan, count


def test_progress_ends_at_its_total(spark, synthetic_lake, monkeypatch):
    """A queue without arrivals has no plan."""
    settings, synthetic, _ = synthetic_lake
    loaded = capacity._load
    monkeypatch.setattr(
        capacity,
        "_load",
        lambda events, queue, which: (load(), 1.0) if queue == "query" else loaded(events, queue, which),
    )
    steps = []
    days = (synthetic.first_day, synthetic.first_day + timedelta(days=13))
    plan = capacity.run(spark, settings, days, question(), lambda *numbers: steps.append(numbers))
    assert [pool.queue for pool in plan.pools] == ["registration", "dispatch"]
    assert steps == [(count, len(QUEUES)) for count in range(len(QUEUES) + 1)]


def test_a_plan_holds_on_the_half_that_it_did_not_see(spark, synthetic_lake):
    settings, synthetic, _ = synthetic_lake
    days = (synthetic.first_day, synthetic.first_day + timedelta(days=13))
    # So dear that a few messages an hour need several processes.
    parameters = question(costs={name: 20_000 * cost for name, cost in capacity.COSTS.items()}, wait=30.0)
    plan = capacity.run(spark, settings, days, parameters, ignore)
    assert [pool.queue for pool in plan.pools] == ["registration", "query", "dispatch"]
    for pool in plan.pools:
        assert pool.p99_wait is not None
        assert pool.late < 0.03, pool
        # A mean knows nothing of bursts.
        assert 1 <= pool.mean_processes <= max(pool.processes.values())
    dispatch = plan.pools[-1]
    assert max(dispatch.processes.values()) > min(dispatch.processes.values())
    twice = capacity.run(spark, settings, days, question(costs=parameters.costs, wait=30.0, users=3.0), ignore)
    assert sum(twice.pools[-1].processes.values()) > sum(dispatch.processes.values())
    with pytest.raises(PipelineError, match="two or more"):
        capacity.run(spark, settings, (days[0], days[0]), parameters, ignore)
    chart_values = yaml.safe_load(capacity.describe(plan))
    assert chart_values == values(plan)
    scaling = chart_values["components"]["dispatch"]["autoscaling"]
    assert scaling["minReplicas"] <= scaling["fallbackReplicas"] < scaling["maxReplicas"]
    assert scaling["messagesPerProcess"] == int(parameters.wait * USE / dispatch.cost)
    assert chart_values["components"]["dispatch"]["replicas"] == max(dispatch.replicas.values())
    assert chart_values["gorush"]["queueNum"] >= (scaling["maxReplicas"] + 3) * CONCURRENCY * 16 * 50


def test_made_up_events_depend_on_the_seed_alone(spark, synthetic_lake):
    settings, plan, count = synthetic_lake
    events = Lake.of(spark, settings).events()
    kinds = {row.kind: row["count"] for row in events.groupBy("kind").count().collect()}
    assert sum(kinds.values()) == count
    assert kinds["received"] == plan.messages
    assert kinds["attempt"] == kinds["delivered"] + kinds["failed"] + kinds["unknown"]
    assert kinds["admitted"] <= kinds["attempt"]
    assert min(kinds[kind] for kind in ("foreign", "filtered", "registered", "queried", "token_died")) > 0

    def digest(frame):
        return frame.selectExpr("sum(hash(*) & 65535)", "count(*)").first()

    small = synthesize.Plan(seed=7, messages=500, first_day=plan.first_day, days=3)
    one = synthesize.events(spark, small)
    assert digest(one) == digest(synthesize.events(spark, small).repartition(5))
    assert digest(one) != digest(
        synthesize.events(spark, synthesize.Plan(seed=8, messages=500, first_day=plan.first_day, days=3))
    )


def test_made_up_events_never_come_where_real_ones_are(spark, connection, dsn, make_settings, synthetic_lake):
    _, plan, _ = synthetic_lake
    settings = make_settings(dsn)
    small = synthesize.Plan(seed=7, messages=50, first_day=happenings.FIRST, days=2)
    made_count = made_up.into_postgres(spark, settings, small)
    assert made_count > 100
    event_count = connection.execute("SELECT count(*) FROM delivery_history").fetchone()
    assert event_count == connection.execute("SELECT count(*) FROM delivery_events").fetchone() == (made_count,)
    assert export.run(spark, settings, ignore).rows == made_count
    with pytest.raises(PipelineError, match="do not belong there"):
        made_up.into_lake(spark, settings, small)
    happenings.write(connection, happenings.make(2))
    with pytest.raises(PipelineError, match="do not belong there"):
        made_up.into_postgres(spark, settings, small)
    assert plan.first_day < LAST
