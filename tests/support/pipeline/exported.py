"""Events of two days, and what of them an export left in the lake."""

from collections import Counter

from support.pipeline import happenings
from support.pipeline.happenings import day_of
from wakupush.pipeline.lake.lake import Lake


def make(messages, seed=1):
    """Return events of two days: each day is a file."""
    return happenings.make(messages, seed, days=happenings.DAYS[-2:])


def events_of(spark, settings):
    return Lake.of(spark, settings).events()


def in_lake(spark, settings):
    """Return the events of the lake as (day, kind, seconds, latency in ms, attempt), counted."""
    rows = events_of(spark, settings).selectExpr(
        "CAST(day AS STRING)", "kind", "unix_timestamp(time)", "latency_ms", "attempt"
    )
    return Counter(tuple(row) for row in rows.collect())


def expected_rows(events):
    return Counter(
        (
            str(day_of(e)),
            str(e.kind),
            int(e.time) if e.kind in {"received", "foreign"} else int(e.time) // 3600 * 3600,
            round(1000 * e.latency) if e.kind in {"answered", "delivered", "foreign"} else None,
            e.attempt,
        )
        for e in events
    )
