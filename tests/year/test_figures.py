from __future__ import annotations

import pytest

from year.figures import TOLERANCES, Day, judge

#: Of a server whose figures are flat once its retention is full.
FLAT = {"rows": 5000, "bytes": 2_000_000, "partitions": 34, "memory": 90 * 2**20, "seconds of a job": 0.03}


def year(count=40, **figures):
    """Return days; of the figures that are given, by the names of `TOLERANCES`, each is a function of the day."""
    names = {name.replace(" ", "_"): name for name in TOLERANCES}
    return [
        Day(
            number=number,
            values={
                name: {"it": figures[key](number) if key in figures else min(1, number / 10) * FLAT[name]}
                for key, name in names.items()
            },
        )
        for number in range(1, count + 1)
    ]


def test_flat_server_passes():
    assert judge(year()) == []


@pytest.mark.parametrize(
    ("figures", "kind"),
    [
        ({"partitions": lambda day: 4 + day}, "partitions"),  # prune drops none
        ({"rows": lambda day: 70 * day}, "rows"),  # a job never deletes
        ({"bytes": lambda day: 40_000 * day}, "bytes"),
        ({"memory": lambda day: (90 + day) * 2**20}, "memory"),
        ({"seconds_of_a_job": lambda day: 0.02 * day}, "seconds of a job"),
    ],
)
def test_what_grows_is_found(figures, kind):
    [problem] = judge(year(**figures))
    assert problem.startswith(f"{kind}: it grew from ")


def test_what_appears_late_is_found():
    [problem] = judge(year(rows=lambda day: 0 if day < 31 else 100))
    assert problem == "rows: it grew from 0 in the second quarter to 100 in the last"


def test_job_that_stops_running_is_found():
    days = [
        Day(number=day.number, values=day.values | {"seconds of a job": {} if day.number > 25 else {"prune": 0.1}})
        for day in year()
    ]
    assert judge(days) == ["seconds of a job: prune has no value in the last quarter"]


def test_one_slow_day_is_no_violation():
    assert judge(year(seconds_of_a_job=lambda day: 9.0 if day == 39 else 0.03)) == []


def test_broken_promise_is_a_violation_on_any_day():
    days = [*year(3), Day(number=4, values={}, violations=["UNANSWERED 1234: query"])]
    assert judge(days) == ["day 4: UNANSWERED 1234: query"]
