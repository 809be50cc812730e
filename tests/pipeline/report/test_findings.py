"""What the report finds out about objectives, outages, changes and costs, and what hidden rows do to it."""

from datetime import UTC, date, datetime, timedelta

import pytest

from wakupush.pipeline.capacity import COSTS
from wakupush.pipeline.report import findings, plots
from wakupush.pipeline.report.tables import TABLES, Total

LAST = date(2026, 11, 27)
DAYS = [LAST - timedelta(days=13 - offset) for offset in range(14)]


def tables(**rows):
    return {table.name: rows.get(table.name, []) for table in TABLES}


def funnel(day, **stages):
    return [{"day": day, "stage": stage, "events": count} for stage, count in stages.items()]


def good(day, what, permille):
    return {"day": day, "what": what, "good_permille": permille, "suppressed": permille is None}


def attempts(hour, platform, attempt, day=LAST, **outcomes):
    """Return the rows of an hour: how many attempts there were, and what came of them."""
    return [
        {"day": day, "hour": hour, "queue": "dispatch", "kind": kind, "platform": platform, "events": count}
        for kind, count in {"attempt": attempt, **outcomes}.items()
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
    answers, deliveries, not_lost = findings.objectives(rows)
    assert answers.share == pytest.approx(0.98)
    assert answers.budget_used == pytest.approx(2)
    assert answers.is_missed
    assert (deliveries.share, deliveries.budget_used, deliveries.is_missed, not_lost.share) == (None, None, False, None)


@pytest.mark.parametrize(("unread", "share", "is_at_most"), [(25, 0.784, False), (None, 0.98, True)])
def test_a_request_that_nobody_read_is_a_late_answer(unread, share, is_at_most):
    rows = tables(
        funnel_daily=funnel(DAYS[0], answered=100, request_expired=unread),
        objectives_daily=[good(DAYS[0], "answer", 980)],
    )
    answers = findings.objectives(rows)[0]
    assert (answers.share, answers.is_at_most) == (pytest.approx(share), is_at_most)


def test_a_day_without_an_answer_is_no_good_day():
    assert findings.objectives(tables(funnel_daily=funnel(LAST, request_expired=9)))[0].share == 0
    hidden = tables(
        funnel_daily=funnel(LAST, answered=None, request_expired=9), objectives_daily=[good(LAST, "answer", None)]
    )
    assert findings.objectives(hidden)[0].share is None


@pytest.mark.parametrize(("lost", "is_missed"), [(0, False), (1, False), (2, True)])
def test_notifications_that_nobody_got_miss_the_objective(lost, is_missed):
    stages = {"delivered_at_once": 90, "delivered_by_retry": 9, "dead_letter": lost, "request_expired": 50}
    not_lost = findings.objectives(tables(funnel_daily=funnel(LAST, **stages)))[2]
    assert not_lost.share == 99 / (99 + lost)
    assert not_lost.is_missed == is_missed


def test_losses_count_without_a_delivery():
    assert findings.objectives(tables(funnel_daily=funnel(LAST, expired=1000)))[2].is_missed


def test_hidden_losses_leave_an_upper_bound():
    rows = [*funnel(DAYS[0], delivered_at_once=None, dead_letter=500), *funnel(DAYS[1], delivered_at_once=99)]
    not_lost = findings.objectives(tables(funnel_daily=[*rows, *funnel(DAYS[2], dead_letter=None, expired=1)]))[2]
    assert (not_lost.share, not_lost.is_at_most, not_lost.is_missed) == (0.99, True, False)


def test_the_share_of_deliveries_counts_days_that_show_both():
    rows = [*funnel(DAYS[0], admitted=100, delivered_at_once=90, delivered_by_retry=6)]
    rows += [
        *funnel(DAYS[1], admitted=80, delivered_at_once=None),
        *funnel(DAYS[2], admitted=None, delivered_at_once=9),
    ]
    assert findings.share_delivered(tables(funnel_daily=rows)) == 0.96
    assert findings.share_delivered(tables(funnel_daily=rows[3:])) is None


def test_hours_of_an_outage_that_follow_each_other_are_one():
    rows = tables(
        load_hourly=[
            *attempts(23, "ios", 30, DAYS[-2], failed=30),
            *attempts(0, "ios", 100, failed=5, unknown=20, delivered=75),
            *attempts(1, "ios", 225, failed=25, delivered=200),
            *attempts(2, "ios", 19, failed=19),
            *attempts(0, "android", 100, failed=20, delivered=80),
            *attempts(5, "ios", 40, failed=40, delivered=None),
            *attempts(7, "", 40, failed=40),
            *attempts(9, "ios", None, failed=40),
            *attempts(11, "ios", 100, failed=40, token_died=35, delivered=60),
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
            *(row for day in DAYS[:7] for row in funnel(day, received=100, answered=10, refused=1)),
            *(row for day in DAYS[7:] for row in funnel(day, received=150, answered=10, dead_letter=None, refused=1)),
            *funnel(LAST, refused=None),
        ],
        objectives_daily=[good(day, "answer", 990 if day < DAYS[7] else 995) for day in DAYS],
    )
    texts = {
        change.name: (change.text(change.before), change.text(change.after), change.difference)
        for change in findings.changes(rows, DAYS[0], LAST)
    }
    assert texts["messages a day"] == ("100", "150", "+50.0 %")
    assert texts["answers within 3 s"] == ("99.00 %", "99.50 %", "+0.50 points")
    assert texts["deliveries within 10 s"] == ("too few to tell", "too few to tell", "")
    # Hidden is not none.
    assert texts["dead letters and expired, a day"] == ("0", "too few to tell", "")
    assert texts["refused a day"] == ("1", "at least 1", "")
    assert findings.changes(rows, DAYS[1], LAST) == []


def test_a_delivery_costs_what_all_messages_cost():
    rows = tables(
        load_hourly=[
            {"kind": "received", "queue": "dispatch", "events": 100, "platform": ""},
            {"kind": "received", "queue": "registration", "events": 10, "platform": ""},
            {"kind": "received", "queue": "query", "events": None, "platform": ""},
            {"kind": "foreign", "queue": "dispatch", "events": 15, "platform": ""},
            {"kind": "foreign", "queue": "registration", "events": 5, "platform": ""},
            {"kind": "delivered", "queue": "dispatch", "events": 70, "platform": "ios"},
        ],
        retries_daily=[
            {"kind": "attempt", "attempt": attempt, "events": count} for attempt, count in ((1, 70), (2, 5), (3, None))
        ],
        funnel_daily=funnel(LAST, foreign=20, delivered_at_once=45, delivered_by_retry=5),
    )
    seconds = 85 * COSTS["dispatch"] + 20 * COSTS["foreign"] + 5 * COSTS["registration"] + 5 * COSTS["again"]
    assert findings.cost_per_thousand(rows) == pytest.approx(1000 * seconds / 50)
    assert findings.cost_per_thousand(tables()) is None


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(-90_000, "-1.5 min"), (-5, "-5 ms"), (0, "0 ms"), (1500, "1.5 s"), (7_200_000, "2 h")]
)
def test_a_time_has_a_unit_that_suits_it(milliseconds, text):
    assert plots.duration(milliseconds) == text


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
