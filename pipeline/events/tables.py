"""The tables of the report: what each row counts, of how many people, and which rows would reveal too few people.

Each table of a day is made from the day's events by one function, each of a period from `devices` of the period's days.
Its rows have ``people``: the number of users that they
are about, or of messages if the events name no user. `anonymous` removes the values of rows about fewer than k people,
and of rows that would reveal these values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

Row = dict[str, Any]

#: A receiver's day is unusual from so many events on, if they are also so many times the mean of the day's receivers.
UNUSUAL_EVENTS: Final = 100
UNUSUAL_TIMES: Final = 20
#: Rows of a day in the table of unusual ones at most.
UNUSUAL_ROWS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the report."""

    name: str
    #: For docs/operating/pipeline.md and the page.
    meaning: str
    #: The columns that identify a row, with their types in Postgres.
    keys: dict[str, str]
    #: The columns of values, with their types in Postgres.
    values: dict[str, str]
    #: Sets of columns, keys or others: rows that agree on a set add up to a number that another table shows.
    wholes: tuple[tuple[str, ...], ...]
    build: Callable[[DataFrame, int], DataFrame]
    #: Whether to show only the hours that `load_hourly` shows, because their sum is shown there.
    of_shown_hours: bool = False
    #: False if the rows are pseudonyms themselves.
    anonymous: bool = True

    @property
    def time(self) -> str:
        """The column of a row's day, or of the first day of its period."""
        return "day" if "day" in self.keys else "period"


def anonymous(rows: list[Row], table: Table, k: int) -> list[Row]:
    """Remove the values of rows about fewer than k people, and of other rows that would reveal them.

    Another table shows the sum of some rows, a whole. This sum less the rows that are shown reveals the sum of the
    hidden ones. So no whole may hide only one row, or only rows about few people: its smallest other rows are hidden
    too. A row that is hidden for one whole is hidden in all.

    Args:
        k: the least number of people that a shown row is about.

    Returns:
        The rows in the order of `people`, with `suppressed`.
    """
    if not table.anonymous:
        return [row | {"suppressed": False} for row in rows]
    rows = sorted(rows, key=lambda row: (row["people"], *(row[name] for name in table.keys)))
    few = {number for number, row in enumerate(rows) if row["people"] < k}
    wholes = [whole for keys in table.wholes for whole in _agreeing(rows, keys)]
    hidden_rows = set(few)
    while revealing := {
        min(whole - hidden_rows) for whole in wholes if whole - hidden_rows and _is_revealing(whole & hidden_rows, few)
    }:
        hidden_rows |= revealing
    nothing = dict.fromkeys(("people", *table.values))
    return [
        row | (nothing if number in hidden_rows else {}) | {"suppressed": number in hidden_rows}
        for number, row in enumerate(rows)
    ]


def _agreeing(rows: list[Row], keys: tuple[str, ...]) -> list[set[int]]:
    """Return the numbers of the rows that have the same values of some keys."""
    groups: dict[tuple[object, ...], set[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault(tuple(row[name] for name in keys), set()).add(number)
    return list(groups.values())


def _is_revealing(hidden_rows: set[int], few: set[int]) -> bool:
    """Return whether the sum of a whole's hidden rows would reveal one row, or few people."""
    return len(hidden_rows) == 1 or (bool(hidden_rows) and hidden_rows <= few)


def of_shown_hours(rows: list[Row], hours: list[Row]) -> list[Row]:
    """Return the rows, by day, hour and queue, of the hours that are shown for received messages in `load_hourly`."""
    visible = {
        (row["day"], row["hour"], row["queue"]) for row in hours if row["kind"] == "received" and not row["suppressed"]
    }
    return [row for row in rows if (row["day"], row["hour"], row["queue"]) in visible]


def _person() -> Column:
    return F.coalesce("user", "trace")


def _people() -> Column:
    """Return of how many people events are; each message without a pseudonym counts as another person."""
    nameless = F.coalesce(F.sum(F.when(_person().isNull(), F.col("count"))), F.lit(0))
    return (F.count_distinct(_person()) + nameless).alias("people")


def _counts() -> tuple[Column, Column]:
    """Return the columns of most tables: the number of events, and of people."""
    return F.sum("count").alias("events"), _people()


def _kind(*kinds: str) -> Column:
    return F.col("kind").isin(*kinds)


def _stage() -> Column:
    kind = F.col("kind")
    of_delivered = F.when(F.col("attempt") == 1, "delivered_at_once").otherwise("delivered_by_retry")
    return F.when(kind == "delivered", of_delivered).otherwise(kind)


def _funnel(events: DataFrame, _: int) -> DataFrame:
    return events.withColumn("stage", _stage()).groupBy("day", "kind", "stage").agg(*_counts())


def _hourly(events: DataFrame, _: int) -> DataFrame:
    return events.withColumn("hour", F.hour("time")).groupBy("day", "hour", "queue", "kind").agg(*_counts())


#: Percentiles that `latency_daily` has.
_PERCENTILES: Final = (50, 95, 99)


def _latency(events: DataFrame, _: int) -> DataFrame:
    """Count messages by value first: percentiles of so many groups would need memory for each person's values."""
    keys = ("day", "what", "queue", "platform")
    what = (
        F.when(_kind("received"), "queue_wait").when(_kind("answered"), "answer").when(_kind("delivered"), "delivery")
    )
    values = (
        events.where(_kind("received", "answered", "delivered"))
        .withColumn("what", what)
        .withColumn("value", F.when(_kind("received"), F.col("queue_wait_ms")).otherwise(F.col("latency_ms")))
        .where("value IS NOT NULL")
        # Rows are joined by these below.
        .fillna("", ["queue", "platform"])
    )
    of_key = Window.partitionBy(*keys)
    least = [
        F.min(F.when(100 * F.col("until") >= share * F.col("events"), F.col("value"))).alias(f"p{share}_ms")
        for share in _PERCENTILES
    ]
    percentiles = (
        values.groupBy(*keys, "value")
        # The wait of several messages is the longest of them.
        .agg(F.sum("count").alias("messages"))
        .withColumn("until", F.sum("messages").over(of_key.orderBy("value")))
        .withColumn("events", F.sum("messages").over(of_key))
        .groupBy(*keys, "events")
        .agg(*least)
    )
    return percentiles.join(values.groupBy(*keys).agg(_people()), list(keys))


def _retries(events: DataFrame, _: int) -> DataFrame:
    return (
        events.where(_kind("attempt", "delivered", "failed", "unknown"))
        .where("attempt IS NOT NULL AND platform IS NOT NULL")
        .groupBy("day", "platform", "attempt", "kind", _stage().alias("stage"))
        .agg(*_counts())
    )


def _failures(events: DataFrame, _: int) -> DataFrame:
    return events.where("failure IS NOT NULL").groupBy("day", "kind", "failure", "platform").agg(*_counts())


def _filter_reasons(events: DataFrame, _: int) -> DataFrame:
    return events.where(_kind("filtered")).groupBy("day", "reason").agg(*_counts())


def _tokens(events: DataFrame, _: int) -> DataFrame:
    return (
        events.where(_kind("registered", "unregistered", "token_died") & F.col("installation").isNotNull())
        .groupBy("day", "platform", "kind")
        .agg(F.count_distinct("installation").alias("devices"), F.count_distinct(_person()).alias("people"))
    )


def _period(days: int) -> Column:
    """Return the first day of the period of pseudonyms that a day is in."""
    number = F.floor(F.datediff("day", F.lit("1970-01-01").cast("date")) / days)
    return F.date_add(F.lit("1970-01-01").cast("date"), (number * days).cast("int"))


def devices(events: DataFrame) -> DataFrame:
    """Return what the tables of a period need of each day: which device registered, was notified, or lost its token."""
    return (
        events.where(_kind("registered", "token_died", "admitted") & F.col("installation").isNotNull())
        .groupBy("day", "platform", "installation")
        .agg(
            F.any_value(_person()).alias("person"),
            F.max(_kind("registered")).alias("registered"),
            F.max(_kind("admitted")).alias("notified"),
            F.max(_kind("token_died")).alias("died"),
        )
    )


def _lives(devices: DataFrame, days: int) -> DataFrame:
    return (
        devices.where("registered OR died")
        .withColumn("period", _period(days))
        .groupBy("period", "platform", "installation")
        .agg(
            F.min(F.when(F.col("registered"), F.col("day"))).alias("began"),
            F.max(F.when(F.col("died"), F.col("day"))).alias("ended"),
            F.any_value("person").alias("person"),
        )
        .where("ended >= began")
        .groupBy("period", "platform", F.datediff("ended", "began").alias("days"))
        .agg(F.count("*").alias("tokens"), F.count_distinct("person").alias("people"))
    )


def _usage(devices: DataFrame, days: int) -> DataFrame:
    return (
        devices.where("registered OR notified")
        .withColumn("period", _period(days))
        .groupBy("period", "platform", "installation")
        .agg(
            F.max("registered").alias("registered"),
            F.max("notified").alias("notified"),
            F.any_value("person").alias("person"),
        )
        .where("registered")
        .groupBy("period", "platform", F.when(F.col("notified"), "notified").otherwise("unused").alias("use"))
        .agg(F.count("*").alias("devices"), F.count_distinct("person").alias("people"))
    )


def _minutes(events: DataFrame, _: int) -> DataFrame:
    minutes = (
        events.where(_kind("received"))
        .groupBy("day", "queue", F.date_trunc("minute", "time").alias("minute"))
        .agg(F.sum("count").alias("messages"))
    )
    return (
        minutes.groupBy("day", F.hour("minute").alias("hour"), "queue")
        .agg(F.sum("messages").alias("messages"), F.max("messages").alias("busiest_minute"))
        .withColumn("people", F.col("messages"))
    )


def _unusual(events: DataFrame, _: int) -> DataFrame:
    daily = (
        events.where(_kind("admitted", "queried") & F.col("user").isNotNull())
        .groupBy("day", "kind", "user")
        .agg(F.sum("count").alias("events"))
    )
    of_day = Window.partitionBy("day", "kind")
    return (
        daily.withColumn("mean", F.avg("events").over(of_day))
        .where((F.col("events") >= UNUSUAL_EVENTS) & (F.col("events") >= UNUSUAL_TIMES * F.col("mean")))
        .withColumn("rank", F.row_number().over(of_day.orderBy(F.desc("events"), "user")))
        .where(F.col("rank") <= UNUSUAL_ROWS)
        .select("day", "kind", F.lower(F.hex("user")).alias("pseudonym"), "events", "mean", F.lit(1).alias("people"))
    )


COUNT: Final = "bigint"
TABLES: Final = (
    Table(
        name="funnel_daily",
        meaning="From message to delivery: events of each kind; deliveries at once and by retry counted apart.",
        keys={"day": "date", "stage": "text"},
        values={"events": COUNT},
        wholes=(("day",), ("day", "kind")),
        build=_funnel,
    ),
    Table(
        name="load_hourly",
        meaning="Events by hour, queue and kind.",
        keys={"day": "date", "hour": "integer", "queue": "text", "kind": "text"},
        values={"events": COUNT},
        wholes=(("day", "kind"), ("day", "queue", "kind")),
        build=_hourly,
    ),
    Table(
        name="latency_daily",
        meaning="Milliseconds since ingest saw the message: until a worker took it (queue_wait), until its answer was"
        " committed (answer), until gorush took the notification (delivery).",
        keys={"day": "date", "what": "text", "queue": "text", "platform": "text"},
        values=dict.fromkeys(("events", "p50_ms", "p95_ms", "p99_ms"), COUNT),
        wholes=(("day", "what"),),
        build=_latency,
    ),
    Table(
        name="retries_daily",
        meaning="Deliveries by attempt and outcome: how much retries help.",
        keys={"day": "date", "platform": "text", "attempt": "integer", "kind": "text"},
        values={"events": COUNT},
        wholes=(("day", "platform", "attempt"), ("day", "platform", "kind"), ("day", "kind"), ("day", "stage")),
        build=_retries,
    ),
    Table(
        name="failures_daily",
        meaning="Failures by class.",
        keys={"day": "date", "kind": "text", "failure": "text", "platform": "text"},
        values={"events": COUNT},
        wholes=(("day", "kind"), ("day", "kind", "platform")),
        build=_failures,
    ),
    Table(
        name="filtered_daily",
        meaning="Notifications that their receivers did not want.",
        keys={"day": "date", "reason": "text"},
        values={"events": COUNT},
        wholes=(("day",),),
        build=_filter_reasons,
    ),
    Table(
        name="tokens_daily",
        meaning="Devices that registered, unregistered, or whose token died.",
        keys={"day": "date", "platform": "text", "kind": "text"},
        values={"devices": COUNT},
        wholes=(("day", "kind"),),
        build=_tokens,
    ),
    Table(
        name="token_lives",
        meaning="Days from a device's first registration to the death of its token, within a period of pseudonyms.",
        keys={"period": "date", "platform": "text", "days": "integer"},
        values={"tokens": COUNT},
        wholes=(("period", "platform"),),
        build=_lives,
    ),
    Table(
        name="registrations_used",
        meaning="Devices that registered in a period of pseudonyms, and whether they were notified or unused.",
        keys={"period": "date", "platform": "text", "use": "text"},
        values={"devices": COUNT},
        wholes=(("period", "platform"),),
        build=_usage,
    ),
    Table(
        name="load_minutes_daily",
        meaning="Messages by hour and queue, and those of its busiest minute, over the hours that `load_hourly` shows.",
        keys={"day": "date", "hour": "integer", "queue": "text"},
        values={"messages": COUNT, "busiest_minute": COUNT},
        wholes=(),
        build=_minutes,
        of_shown_hours=True,
    ),
    Table(
        name="unusual_daily",
        meaning=f"Users, by pseudonym, with at least {UNUSUAL_EVENTS} pushes or queries a day and"
        f" {UNUSUAL_TIMES} times the mean: at most {UNUSUAL_ROWS} a day and kind.",
        keys={"day": "date", "kind": "text", "pseudonym": "text"},
        values={"events": COUNT, "mean": "double precision"},
        wholes=(("day",),),
        build=_unusual,
        anonymous=False,
    ),
)
