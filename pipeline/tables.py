"""The tables of the report: what each row counts, over whom, and which rows would tell of too few.

Each table is made from the events of the lake by one function. Its rows carry ``people``: how many users they are
about, or messages where the events name no user. `anonymous` takes the values out of rows about fewer than k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

#: A receiver's day is unusual from so many events on, and so many times the day's mean of a receiver.
UNUSUAL_EVENTS: Final = 100
UNUSUAL_TIMES: Final = 20
#: Rows of a day in the table of those.
UNUSUAL_ROWS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the report."""

    name: str
    #: For docs/pipeline.md and the page.
    meaning: str
    #: What names a row, with its type in Postgres.
    keys: dict[str, str]
    #: What it says, with its type in Postgres.
    values: dict[str, str]
    #: The keys under which rows add up to something that is told elsewhere.
    whole: tuple[str, ...]
    build: Callable[[DataFrame, int], DataFrame]
    #: False where the rows are pseudonyms themselves.
    anonymous: bool = True


def anonymous(rows: DataFrame, table: Table, k: int) -> DataFrame:
    """Take the values out of rows about fewer than k people.

    The smallest other row of the same whole loses its values too: else the total, told in another table, less the rows
    that are shown would tell what was left out.
    """
    if not table.anonymous:
        return rows.withColumn("suppressed", F.lit(False))
    whole = Window.partitionBy(*table.whole) if table.whole else Window.partitionBy(F.lit(0))
    few = F.col("people") < k
    order = whole.orderBy(few.cast("int"), "people", *table.keys)
    marked = rows.withColumn("suppressed", few | ((F.row_number().over(order) == 1) & (F.max(few).over(whole))))
    for name in ("people", *table.values):
        marked = marked.withColumn(name, F.when(~F.col("suppressed"), F.col(name)))
    return marked


def _person() -> Column:
    return F.coalesce("user", "trace")


def _counted() -> tuple[Column, Column]:
    """Return the columns of most tables: how many events, and of how many people."""
    return F.count("*").alias("events"), F.count_distinct(_person()).alias("people")


def _kind(*kinds: str) -> Column:
    return F.col("kind").isin(*kinds)


def _stage() -> Column:
    kind = F.col("kind")
    of_delivered = F.when(F.col("attempt") == 1, "delivered_at_once").otherwise("delivered_by_retry")
    return F.when(kind == "delivered", of_delivered).otherwise(kind)


def _funnel(events: DataFrame, _: int) -> DataFrame:
    return events.withColumn("stage", _stage()).groupBy("day", "stage").agg(*_counted())


def _hourly(events: DataFrame, _: int) -> DataFrame:
    return events.withColumn("hour", F.hour("time")).groupBy("day", "hour", "queue", "kind").agg(*_counted())


def _percentile(share: float, column: str) -> Column:
    """Return the least value that at least a share of the rows do not exceed."""
    return F.expr(f"percentile_disc({share}) WITHIN GROUP (ORDER BY {column})")


def _latency(events: DataFrame, _: int) -> DataFrame:
    what = (
        F.when(_kind("received"), "queue_wait").when(_kind("answered"), "answer").when(_kind("delivered"), "delivery")
    )
    return (
        events.where(_kind("received", "answered", "delivered"))
        .withColumn("what", what)
        .withColumn("value", F.when(_kind("received"), F.col("queue_wait_ms")).otherwise(F.col("latency_ms")))
        .where("value IS NOT NULL")
        .groupBy("day", "what", "queue", "platform")
        .agg(
            F.count("*").alias("events"),
            *(_percentile(share / 100, "value").cast("long").alias(f"p{share}_ms") for share in (50, 95, 99)),
            F.count_distinct(_person()).alias("people"),
        )
    )


def _retries(events: DataFrame, _: int) -> DataFrame:
    return (
        events.where(_kind("attempt", "delivered", "failed", "unknown"))
        .where("attempt IS NOT NULL AND platform IS NOT NULL")
        .groupBy("day", "platform", "attempt", "kind")
        .agg(*_counted())
    )


def _failures(events: DataFrame, _: int) -> DataFrame:
    return events.where("failure IS NOT NULL").groupBy("day", "kind", "failure", "platform").agg(*_counted())


def _filtered(events: DataFrame, _: int) -> DataFrame:
    return events.where(_kind("filtered")).groupBy("day", "reason").agg(*_counted())


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


def _lives(events: DataFrame, days: int) -> DataFrame:
    return (
        events.where(_kind("registered", "token_died") & F.col("installation").isNotNull())
        .withColumn("period", _period(days))
        .groupBy("period", "platform", "installation")
        .agg(
            F.min(F.when(_kind("registered"), F.col("day"))).alias("began"),
            F.max(F.when(_kind("token_died"), F.col("day"))).alias("ended"),
        )
        .where("ended >= began")
        .groupBy("period", "platform", F.datediff("ended", "began").alias("days"))
        .agg(F.count("*").alias("tokens"), F.count("*").alias("people"))
    )


def _used(events: DataFrame, days: int) -> DataFrame:
    return (
        events.where(_kind("registered", "admitted") & F.col("installation").isNotNull())
        .withColumn("period", _period(days))
        .groupBy("period", "platform", "installation")
        .agg(F.max(_kind("registered")).alias("registered"), F.max(_kind("admitted")).alias("notified"))
        .where("registered")
        .groupBy("period", "platform", F.when(F.col("notified"), "notified").otherwise("unused").alias("use"))
        .agg(F.count("*").alias("devices"), F.count("*").alias("people"))
    )


def _week(events: DataFrame, _: int) -> DataFrame:
    minutes = (
        events.where(_kind("received"))
        .groupBy("day", "queue", F.date_trunc("minute", "time").alias("minute"))
        .agg(F.count("*").alias("messages"))
    )
    return (
        minutes.groupBy(F.weekday("minute").alias("weekday"), F.hour("minute").alias("hour"), "queue")
        .agg(
            F.sum("messages").alias("messages"),
            F.count_distinct("day").alias("days"),
            F.max("messages").alias("busiest_minute"),
        )
        .withColumn("people", F.col("messages"))
    )


def _unusual(events: DataFrame, _: int) -> DataFrame:
    daily = (
        events.where(_kind("admitted", "queried") & F.col("user").isNotNull())
        .groupBy("day", "kind", "user")
        .agg(F.count("*").alias("events"))
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
        meaning="The way from message to delivery: events of each kind; deliveries at once and by a retry apart.",
        keys={"day": "date", "stage": "text"},
        values={"events": COUNT},
        whole=("day",),
        build=_funnel,
    ),
    Table(
        name="load_hourly",
        meaning="Events by hour, queue and kind.",
        keys={"day": "date", "hour": "integer", "queue": "text", "kind": "text"},
        values={"events": COUNT},
        whole=("day", "kind"),
        build=_hourly,
    ),
    Table(
        name="latency_daily",
        meaning="Milliseconds since ingest saw the message: until a worker took it (queue_wait), until its answer was"
        " committed (answer), until gorush took the notification (delivery).",
        keys={"day": "date", "what": "text", "queue": "text", "platform": "text"},
        values=dict.fromkeys(("events", "p50_ms", "p95_ms", "p99_ms"), COUNT),
        whole=("day", "what"),
        build=_latency,
    ),
    Table(
        name="retries_daily",
        meaning="What each attempt of deliveries came to: what retries won.",
        keys={"day": "date", "platform": "text", "attempt": "integer", "kind": "text"},
        values={"events": COUNT},
        whole=("day", "platform", "attempt"),
        build=_retries,
    ),
    Table(
        name="failures_daily",
        meaning="Failures by class.",
        keys={"day": "date", "kind": "text", "failure": "text", "platform": "text"},
        values={"events": COUNT},
        whole=("day", "kind"),
        build=_failures,
    ),
    Table(
        name="filtered_daily",
        meaning="Notifications that their receivers did not want.",
        keys={"day": "date", "reason": "text"},
        values={"events": COUNT},
        whole=("day",),
        build=_filtered,
    ),
    Table(
        name="tokens_daily",
        meaning="Devices that registered, unregistered, or whose token died.",
        keys={"day": "date", "platform": "text", "kind": "text"},
        values={"devices": COUNT},
        whole=("day", "kind"),
        build=_tokens,
    ),
    Table(
        name="token_lives",
        meaning="Days from a device's first registration to the death of its token, within a period of pseudonyms.",
        keys={"period": "date", "platform": "text", "days": "integer"},
        values={"tokens": COUNT},
        whole=("period", "platform"),
        build=_lives,
    ),
    Table(
        name="registrations_used",
        meaning="Devices that registered in a period of pseudonyms, and whether they were notified or unused.",
        keys={"period": "date", "platform": "text", "use": "text"},
        values={"devices": COUNT},
        whole=("period", "platform"),
        build=_used,
    ),
    Table(
        name="load_weekly",
        meaning="Load by hour of the week (weekday 0 is Monday), over all days of the report.",
        keys={"weekday": "integer", "hour": "integer", "queue": "text"},
        values={"messages": COUNT, "days": COUNT, "busiest_minute": COUNT},
        whole=("weekday", "queue"),
        build=_week,
    ),
    Table(
        name="unusual_daily",
        meaning=f"Users, by pseudonym, who were sent or asked for at least {UNUSUAL_EVENTS} times a day and"
        f" {UNUSUAL_TIMES} times the mean: at most {UNUSUAL_ROWS} a day and kind.",
        keys={"day": "date", "kind": "text", "pseudonym": "text"},
        values={"events": COUNT, "mean": "double precision"},
        whole=("day",),
        build=_unusual,
        anonymous=False,
    ),
)
