"""What the report finds out about objectives, outages, changes and costs, and what hidden rows do to it."""

from datetime import UTC, date, datetime, timedelta

import pytest

from wakupush.pipeline.events import findings
from wakupush.pipeline.events.capacity import COSTS
from wakupush.pipeline.events.findings import Total
from wakupush.pipeline.events.tables import TABLES

LAST = date(2026, 11, 27)
DAYS = [LAST - timedelta(days=13 - offset) for offset in range(14)]


def tables(**rows):
    return {table.name: rows.get(table.name, []) for table in TABLES}


def funnel(day, **stages):
    return [{"day": day, "stage": stage, "events": count} for stage, count in stages.items()]


def good(day, what, permille):
    return {"day": day, "what": what, "good_permille": permille, "suppressed": permille is None}


def attempts(hour, platform, failed, delivered, day=LAST):
    return [
        {"day": day, "hour": hour, "queue": "dispatch", "kind": kind, "platform": platform, "events": count}
        for kind, count in (("failed", failed), ("delivered", delivered))
    ]


@pytest.mark.parametrize(
    ("values", "text"), [([1200, 3], "1,203"), ([1200, None], "at least 1,200"), ([None], "too few to tell"), ([], "0")]
)
def test_a_sum_says_when_rows_are_hidden(values, text):
    assert str(Total.of([{"events": value} for value in values], "events")) == text


def test_each_day_counts_by_its_number_of_answers():
    rows = tables(
        funnel_daily=[*funnel(DAYS[0], answered=900), *funnel(DAYS[1], answered=100), *funnel(DAYS[2], answered=50)],
        objectives_daily=[good(DAYS[0], "answer", 1000), good(DAYS[1], "answer", 800), good(DAYS[2], "answer", None)],
    )
    answers, deliveries, kept = findings.objectives(rows)
    assert answers.share == pytest.approx(0.98)
    assert answers.budget_used == pytest.approx(2)
    assert answers.is_missed
    assert (deliveries.share, deliveries.budget_used, deliveries.is_missed, kept.share) == (None, None, False, None)


@pytest.mark.parametrize(("lost", "is_missed"), [(0, False), (1, False), (2, True)])
def test_notifications_that_nobody_got_miss_the_objective(lost, is_missed):
    rows = tables(funnel_daily=funnel(LAST, delivered_at_once=90, delivered_by_retry=9, dead_letter=lost, expired=0))
    kept = findings.objectives(rows)[2]
    assert kept.share == 99 / (99 + lost)
    assert kept.is_missed == is_missed


def test_losses_count_without_a_delivery_and_not_if_they_are_hidden():
    assert findings.objectives(tables(funnel_daily=funnel(LAST, dead_letter=1000)))[2].is_missed
    hidden = funnel(LAST, delivered_at_once=100, dead_letter=None)
    assert findings.objectives(tables(funnel_daily=hidden))[2].share is None


def test_hours_of_an_outage_that_follow_each_other_are_one():
    rows = tables(
        load_hourly=[
            *attempts(23, "ios", 30, 0, DAYS[-2]),
            *attempts(0, "ios", 25, 75),
            *attempts(1, "ios", 25, 200),
            *attempts(2, "ios", 19, 0),
            *attempts(0, "android", 20, 80),
            *attempts(5, "ios", 40, None),
            *attempts(7, "", 40, 0),
        ]
    )
    midnight = datetime(2026, 11, 27, tzinfo=UTC)
    hour = timedelta(hours=1)
    assert [(each.platform, each.begin, each.end, each.failures) for each in findings.outages(rows)] == [
        ("ios", midnight - hour, midnight + hour, 55),
        ("android", midnight, midnight + hour, 20),
        ("ios", midnight + 5 * hour, midnight + 6 * hour, 40),
    ]


def test_the_last_week_stands_beside_the_week_before():
    rows = tables(
        funnel_daily=[
            *(row for day in DAYS[:7] for row in funnel(day, received=100, answered=10)),
            *(row for day in DAYS[7:] for row in funnel(day, received=150, answered=10, dead_letter=None)),
        ],
        objectives_daily=[good(day, "answer", 990 if day < DAYS[7] else 995) for day in DAYS],
    )
    told = {each.name: (each.before, each.after, each.difference) for each in findings.changes(rows, DAYS[0], LAST)}
    assert told["messages a day"] == (100, 150, "+50.0 %")
    assert told["answers within 3 s"] == (pytest.approx(0.99), pytest.approx(0.995), "+0.50 points")
    # Hidden is not none.
    assert told["dead letters and expired, a day"] == (0, None, "")
    assert findings.changes(rows, DAYS[1], LAST) == []


def test_a_delivery_costs_what_all_messages_cost():
    rows = tables(
        load_hourly=[
            {"kind": "received", "queue": "dispatch", "events": 100, "platform": ""},
            {"kind": "received", "queue": "registration", "events": 10, "platform": ""},
            {"kind": "received", "queue": "query", "events": None, "platform": ""},
            {"kind": "delivered", "queue": "dispatch", "events": 70, "platform": "ios"},
        ],
        retries_daily=[
            {"kind": "attempt", "attempt": attempt, "events": count} for attempt, count in ((1, 70), (2, 5), (3, None))
        ],
        funnel_daily=funnel(LAST, foreign=20, delivered_at_once=45, delivered_by_retry=5),
    )
    seconds = 80 * COSTS["dispatch"] + 20 * COSTS["foreign"] + 10 * COSTS["registration"] + 5 * COSTS["again"]
    assert findings.cost_per_thousand(rows) == pytest.approx(1000 * seconds / 50)
    assert findings.cost_per_thousand(tables()) is None


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100.00 %"),
        (0.99999, "99.9990 %"),
        (0.9999, "99.99 %"),
        (0.5, "50.00 %"),
        (0.00001, "0.0010 %"),
        (0.0, "0.00 %"),
    ],
)
def test_what_is_not_quite_all_is_not_rounded_to_it(share, text):
    assert findings.percent(share) == text
