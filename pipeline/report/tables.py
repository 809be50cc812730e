"""The tables of the report: what each row counts, of how many people, and which rows would reveal too few people.

Each table of a day is made from the day's events by one function, each of a period from `devices` of the period's days.
Its rows have ``people``: the number of users that they
are about, or of messages if the events name no user. `anonymous` removes the values of rows about fewer than k people,
and of rows that would reveal these values.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from wakupush.model.objectives import ANSWER_SECONDS, DELIVERY_SECONDS

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Total:
    """A sum of rows, of which some may be hidden."""

    #: Of the rows that are shown.
    shown: float
    #: Whether the sum is more, because rows are hidden.
    is_partial: bool = False

    @classmethod
    def of(cls, rows: Iterable[Row], name: str) -> "Total":
        """Return the sum of a column."""
        values = [row[name] for row in rows]
        return cls(sum(value for value in values if value is not None), None in values)

    @property
    def is_hidden(self) -> bool:
        """Whether nothing is known of it."""
        return self.is_partial and not self.shown

    def text(self, name: Callable[[float], str]) -> str:
        """Return a sum as text, never empty: what is hidden makes it a lower bound."""
        if self.is_hidden:
            return "too few to tell"
        return f"at least {name(self.shown)}" if self.is_partial else name(self.shown)

    def __str__(self) -> str:
        """Return a sum as text, without decimals."""
        return self.text("{:,.0f}".format)

    def __add__(self, other: "Total") -> "Total":
        """Return the sum of both."""
        return Total(self.shown + other.shown, self.is_partial or other.is_partial)

    def __truediv__(self, number: float) -> "Total":
        """Return the mean of so many."""
        return Total(self.shown / number, self.is_partial)


HIDDEN: Final = Total(0, is_partial=True)

#: A receiver's day is unusual from so many events on, if they are also so many times the mean of the day's receivers.
UNUSUAL_EVENTS: Final = 100
UNUSUAL_TIMES: Final = 20
#: Rows of a day in the table of unusual ones at most.
UNUSUAL_ROWS: Final = 20
#: The number that stands for the third attempt and all later ones in `failures_daily`.
LATER_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Coarser:
    """A table of which each row is the sum of rows here: those that agree with it on some columns."""

    table: str
    columns: tuple[str, ...]
    #: Of which of its rows that is so: those that have these values.
    of: Mapping[str, object] = field(default_factory=dict)

    def hides(self, tables: Mapping[str, list[Row]]) -> Callable[[Row], bool]:
        """Return which rows are hidden, because they add up to one that is hidden there.

        Args:
            tables: the rows of tables, after `anonymous`.
        """
        hidden = {
            self._place(row)
            for row in tables[self.table]
            if row["suppressed"] and all(row[name] == value for name, value in self.of.items())
        }
        return lambda row: self._place(row) in hidden

    def _place(self, row: Row) -> tuple[object, ...]:
        return tuple(min(row[name], LATER_ATTEMPTS) if name == "attempt" else row[name] for name in self.columns)


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
    #: Makes the rows of a frame of events, or of `devices` with the column ``period``.
    build: Callable[[DataFrame], DataFrame]
    #: Tables whose hidden rows the rows of this one would reveal.
    coarser: tuple[Coarser, ...] = ()
    #: False if the rows are pseudonyms themselves.
    anonymous: bool = True

    @property
    def time(self) -> str:
        """The column of a row's day, or of the first day of its period."""
        return "day" if "day" in self.keys else "period"


def anonymous(rows: list[Row], table: Table, k: int, before: Mapping[str, list[Row]]) -> list[Row]:
    """Remove the values of rows about fewer than k people, and of other rows that would reveal them.

    Another table shows the sum of some rows, a whole. This sum less the rows that are shown reveals the sum of the
    hidden ones. So no whole may hide only one row, or only rows about few people: its smallest other rows are hidden
    too. A row that is hidden for one whole is hidden in all.

    Args:
        k: the least number of people that a shown row is about.
        before: the rows of the tables before this one, as they are shown.

    Returns:
        The rows in the order of `people`, with `suppressed`.
    """
    if not table.anonymous:
        return [row | {"suppressed": False} for row in rows]
    rows = sorted(rows, key=lambda row: (row["people"], *(row[name] for name in table.keys)))
    hides = [coarser.hides(before) for coarser in table.coarser]
    few = {number for number, row in enumerate(rows) if row["people"] < k}
    wholes = [whole for keys in table.wholes for whole in _agreeing(rows, keys)]
    hidden_rows = few | {number for number, row in enumerate(rows) if any(is_hidden(row) for is_hidden in hides)}
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
    of_expired = F.when(F.col("platform").isNull(), "request_expired").otherwise("expired")
    return F.when(kind == "delivered", of_delivered).when(kind == "expired", of_expired).otherwise(kind)


def _has_platform() -> Column:
    """Return whether events are of notifications: `_stage` tells expired ones from requests."""
    return F.col("platform").isNotNull().alias("has_platform")


def _funnel(events: DataFrame) -> DataFrame:
    return events.withColumn("stage", _stage()).groupBy("day", "kind", "stage").agg(*_counts())


def _hourly(events: DataFrame) -> DataFrame:
    hour = F.hour("time").alias("hour")
    return events.groupBy("day", hour, "queue", "kind", "platform", _has_platform()).agg(*_counts())


def _objectives(events: DataFrame) -> DataFrame:
    limit = F.when(_kind("answered"), 1000 * ANSWER_SECONDS).otherwise(1000 * DELIVERY_SECONDS)
    total = F.sum("count")
    good = F.sum(F.when(F.col("latency_ms") <= limit, F.col("count")).otherwise(0))
    what = F.when(_kind("answered"), "answer").otherwise("delivery").alias("what")
    # What is not quite all is not rounded to it. A finer share of few events would be their number.
    permille = F.when(good == total, 1000).otherwise(F.least(F.round(1000 * good / total), F.lit(999)))
    return (
        events.where(_kind("answered", "delivered") & F.col("latency_ms").isNotNull())
        .groupBy("day", what)
        .agg(permille.cast("long").alias("good_permille"), _people())
    )


def _pushes(events: DataFrame) -> DataFrame:
    return events.where(_kind("admitted", "delivered")).groupBy("day", "kind", "app", "push_type").agg(*_counts())


_WEEK: Final = 7
#: The number of a shard in the place of none.
NO_SHARD: Final = -1
#: Percentiles of a table of times.
_PERCENTILES: Final = (50, 95, 99)


def _latency(events: DataFrame) -> DataFrame:
    what = (
        F.when(_kind("received"), "queue_wait").when(_kind("answered"), "answer").when(_kind("delivered"), "delivery")
    )
    values = (
        events.where(_kind("received", "answered", "delivered"))
        .withColumn("what", what)
        .withColumn("value", F.when(_kind("received"), F.col("queue_wait_ms")).otherwise(F.col("latency_ms")))
    )
    return _percentiles(values, "day", "what", "queue", "platform")


def _arrivals(events: DataFrame) -> DataFrame:
    return _percentiles(events.withColumn("value", F.col("age_ms")).fillna(NO_SHARD, ["shard"]), "day", "shard")


def _percentiles(frame: DataFrame, *keys: str) -> DataFrame:
    """Return the percentiles of the column ``value``, where it is known.

    Messages are counted by value first: percentiles of so many groups would need memory for each person's values.
    """
    # Rows are joined by these below.
    values = frame.where("value IS NOT NULL").fillna("")
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


def _retries(events: DataFrame) -> DataFrame:
    return (
        events.where(_kind("attempt", "delivered", "failed", "unknown"))
        .where("attempt IS NOT NULL AND platform IS NOT NULL")
        .groupBy("day", "platform", "attempt", "kind", _stage().alias("stage"))
        .agg(*_counts())
    )


def _failures(events: DataFrame) -> DataFrame:
    # `least` leaves nulls out.
    attempt = F.when(F.col("attempt").isNull(), 0).otherwise(F.least("attempt", F.lit(LATER_ATTEMPTS)))
    return (
        events.where("failure IS NOT NULL")
        .groupBy("day", "kind", "failure", "platform", attempt.alias("attempt"), _has_platform())
        .agg(*_counts())
    )


def _refusals(events: DataFrame) -> DataFrame:
    hour = F.hour("time").alias("hour")
    return events.where(_kind("refused") & F.col("failure").isNotNull()).groupBy("day", hour, "failure").agg(*_counts())


def _filter_reasons(events: DataFrame) -> DataFrame:
    return events.where(_kind("filtered")).groupBy("day", "reason").agg(*_counts())


def _tokens(events: DataFrame) -> DataFrame:
    return (
        events.where(_kind("registered", "unregistered", "token_died", "admitted") & F.col("installation").isNotNull())
        .groupBy("day", "platform", F.when(_kind("admitted"), "notified").otherwise(F.col("kind")).alias("kind"))
        .agg(F.count_distinct("installation").alias("devices"), F.count_distinct(_person()).alias("people"))
    )


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


def _lives(devices: DataFrame) -> DataFrame:
    return (
        devices.where("registered OR died")
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


def _usage(devices: DataFrame) -> DataFrame:
    return (
        devices.where("registered OR notified")
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


def _last_weeks(devices: DataFrame) -> DataFrame:
    week = F.floor(F.datediff("day", "period") / _WEEK).cast("int")
    return (
        devices.where("registered OR notified")
        .withColumn("week", week)
        .groupBy("period", "platform", "installation")
        .agg(
            F.min(F.when(F.col("registered"), F.col("week"))).alias("began"),
            F.max("week").alias("week"),
            F.any_value("person").alias("person"),
        )
        .where("began = 0")
        .groupBy("period", "platform", "week")
        .agg(F.count("*").alias("devices"), F.count_distinct("person").alias("people"))
    )


def _minutes(events: DataFrame) -> DataFrame:
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


def _unusual(events: DataFrame) -> DataFrame:
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
        meaning="From message to delivery: events of each kind. Deliveries at once and by a retry are counted apart,"
        " and so are notifications that expired and requests that nobody read in time.",
        keys={"day": "date", "stage": "text"},
        values={"events": COUNT},
        wholes=(("day",), ("day", "kind")),
        build=_funnel,
    ),
    Table(
        name="objectives_daily",
        meaning=f"Of a thousand answers how many took at most {ANSWER_SECONDS} s (answer), of a thousand deliveries how"
        f" many at most {DELIVERY_SECONDS} s (delivery), since ingest saw the message.",
        keys={"day": "date", "what": "text"},
        values={"good_permille": COUNT},
        wholes=(),
        build=_objectives,
    ),
    Table(
        name="pushes_daily",
        meaning="Notifications admitted and delivered, by app and type.",
        keys={"day": "date", "kind": "text", "app": "text", "push_type": "text"},
        values={"events": COUNT},
        wholes=(("day", "kind"),),
        build=_pushes,
    ),
    Table(
        name="load_hourly",
        meaning="Events by hour, queue, kind and platform.",
        keys={"day": "date", "hour": "integer", "queue": "text", "kind": "text", "platform": "text"},
        values={"events": COUNT},
        wholes=(
            ("day", "kind"),
            ("day", "queue", "kind"),
            ("day", "kind", "platform"),
            ("day", "kind", "has_platform"),
        ),
        build=_hourly,
    ),
    Table(
        name="arrivals_daily",
        meaning="Milliseconds from the sender's time to ingest seeing the message, by shard; without messages that are"
        " not for us, and those out of a Store.",
        keys={"day": "date", "shard": "integer"},
        values=dict.fromkeys(("events", "p50_ms", "p95_ms", "p99_ms"), COUNT),
        wholes=(("day",),),
        build=_arrivals,
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
        meaning=f"Failures by class and attempt: 0 for none, {LATER_ATTEMPTS} for the third and all later ones.",
        keys={"day": "date", "kind": "text", "failure": "text", "platform": "text", "attempt": "integer"},
        values={"events": COUNT},
        wholes=(
            ("day", "kind"),
            ("day", "kind", "platform"),
            ("day", "kind", "platform", "attempt"),
            ("day", "kind", "has_platform"),
        ),
        build=_failures,
        coarser=(Coarser(table="retries_daily", columns=("day", "kind", "platform", "attempt")),),
    ),
    Table(
        name="refusals_hourly",
        meaning="Messages and notifications that were refused, or above a limit, by reason and hour.",
        keys={"day": "date", "hour": "integer", "failure": "text"},
        values={"events": COUNT},
        wholes=(("day",), ("day", "failure"), ("day", "hour")),
        build=_refusals,
        coarser=(
            Coarser(table="failures_daily", columns=("day", "failure"), of={"kind": "refused"}),
            Coarser(table="load_hourly", columns=("day", "hour"), of={"kind": "refused"}),
        ),
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
        meaning="Devices that registered, unregistered, were notified, or whose token died.",
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
        name="devices_by_last_week",
        meaning="Devices that registered in the first week of a period of pseudonyms, by the last week (from 0) in"
        " which they registered or were notified.",
        keys={"period": "date", "platform": "text", "week": "integer"},
        values={"devices": COUNT},
        wholes=(("period", "platform"),),
        build=_last_weeks,
    ),
    Table(
        name="load_minutes_daily",
        meaning="Messages by hour and queue, and those of its busiest minute.",
        keys={"day": "date", "hour": "integer", "queue": "text"},
        values={"messages": COUNT, "busiest_minute": COUNT},
        wholes=(),
        build=_minutes,
        coarser=(Coarser(table="load_hourly", columns=("day", "hour", "queue"), of={"kind": "received"}),),
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
