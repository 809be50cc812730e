"""What is hidden in the tables of a day, made by plain Python: no Spark is needed."""

import pytest

from support.pipeline import counting, happenings, subtracting
from support.pipeline.happenings import FIRST, pseudonym, seconds
from wakupush.model.events import Event
from wakupush.pipeline.report.findings import Total
from wakupush.pipeline.report.page import WrittenReport, render
from wakupush.pipeline.report.tables import TABLES, anonymous

K = 5


def events_of(kind, users, hours=(0,), **values):
    """Return an event of each user in each hour."""
    return [
        Event(
            kind=kind,
            time=seconds(FIRST) + 3600 * hour,
            worker="one:1",
            trace_id=f"{hour} {user}",
            key_pseudonym=pseudonym(user),
            queue="dispatch",
            latency=1.0,
            queue_wait=1.0,
            **values,
        )
        for user in range(users)
        for hour in hours
    ]


def attempts_of(attempt, users, platform="ios", **values):
    of_attempt = {"attempt": attempt, "platform": platform} | values
    return events_of("attempt", users, **of_attempt) + events_of("delivered", users, **of_attempt)


def tables(events):
    """Return the tables that subtractions are made of, with what is too few hidden, and the rows that are too few."""
    expected = counting.every(events, FIRST)
    report, few = {}, set()
    for table in TABLES:
        if table.name in subtracting.PARTS:
            of_table = expected[table.name]
            rows = [
                counting.by_column(table.keys, key) | dict(zip(("people", *table.values), values, strict=True))
                for key, values in of_table.items()
            ]
            report[table.name] = anonymous(rows, table, K, report)
            few |= {(table.name, key) for key, (people, *_) in of_table.items() if people < K}
    return report, few


#: Days that have a little of something.
DAYS = {
    # The hours tell of all deliveries: less those at once, they told of those by a retry.
    "a retry": attempts_of(1, 20, hours=range(24)) + attempts_of(2, 2) + events_of("queried", 9),
    # The funnel tells of all that retries won: less the second attempts, it told of the third.
    "a third attempt": attempts_of(1, 30, "android") + attempts_of(1, 6) + attempts_of(2, 8) + attempts_of(3, 1),
    # The funnel tells of all notifications that expired: less those of Android, they told of iOS.
    "an expired push": [
        *events_of("expired", 3, platform="ios", attempt=1, failure="delivery_expired"),
        *events_of("expired", 20, platform="android", attempt=1, failure="delivery_expired"),
        *events_of("expired", 6, failure="request_expired"),
    ],
    "anything": happenings.make(300, days=happenings.DAYS[:1]),
}


@pytest.mark.parametrize("events", DAYS.values(), ids=DAYS)
def test_no_subtraction_tells_of_too_few(events):
    report, few = tables(events)
    assert few
    assert not few & subtracting.revealed_counts(report).keys()
    assert any(row.get("events") for rows in report.values() for row in rows)


def test_the_total_tells_nothing_that_is_hidden():
    events = events_of("token_died", 3) + events_of("queried", 9, hours=range(24)) + events_of("opened", 50)
    rows, _ = tables(events)
    report = WrittenReport(
        first=FIRST,
        last=FIRST,
        rows={each.name: rows.get(each.name, []) for each in TABLES},
        page="",
        smallest_cell=K,
    )
    event_count = sum(row["events"] for row in rows["funnel_daily"] if not row["suppressed"])
    assert report.events == Total(50, is_partial=True)
    assert event_count == 50
    assert "<p>Delivery events: at least 50." in render(report)
