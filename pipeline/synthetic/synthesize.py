"""``wakupush pipeline synthesize``: makes up events of a server on all executors, the same for the same seed.

Every value is a hash of the seed, a name and the number of its message, so it does not depend on which executor makes
it. The events have: a usual course of day and week, group chats, a few users with much traffic, outages of the
platforms with retries after them, device tokens that die, registrations, queries, and messages that are not for us.
"""

import itertools
import math
import random
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from wakupush.model.events import EventKind
from wakupush.model.failures import Failure
from wakupush.model.notifications import NotificationType
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION

#: The worker in made-up events, which distinguishes them from others.
WORKER: Final = "synthetic"
#: Approximate share of a day's messages in each hour, UTC.
HOURS: Final = (12, 8, 5, 4, 4, 6, 12, 24, 38, 46, 50, 54, 58, 55, 52, 50, 52, 58, 68, 78, 82, 74, 52, 28)
#: Weights of the days from Monday to Sunday.
WEEKDAYS: Final = (1.0, 1.02, 1.04, 1.03, 1.1, 0.9, 0.82)
#: The newest version in which each happening is a separate event, as here: a newer event can count several.
_SCHEMA_VERSION: Final = 2
#: Messages of a user over all days, on average.
_MESSAGES_PER_USER: Final = 40
#: Messages that a task makes, approximately.
_TASK_MESSAGES: Final = 20_000
_OUTAGE_MINUTES: Final = (10, 120)
_MOST_ATTEMPTS: Final = 10
_PERCENT: Final = 100
_PLATFORMS: Final = ("ios", "android")
#: Of eight messages one after the other.
_PUSH_TYPES: Final = (*[NotificationType.MESSAGE] * 4, *NotificationType)
_FIRST_SHARD: Final = 32
_SHARDS: Final = 8
#: Bits of a hash that make a number between 0 and 1.
_BITS: Final = 52


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parameters of the made-up events."""

    seed: int
    messages: int
    first_day: date
    days: int

    @property
    def users(self) -> int:
        """Registered users."""
        return max(20, self.messages // _MESSAGES_PER_USER)

    @property
    def begin(self) -> int:
        """Seconds since the epoch of the first day's beginning."""
        return int(datetime.combine(self.first_day, time.min, UTC).timestamp())

    def hours(self) -> list[tuple[int, int, int]]:
        """Return each hour's beginning (seconds since the epoch), its first message, and the one after its last."""
        weights = []
        for offset in range(self.days):
            weekday = (self.first_day + timedelta(days=offset)).weekday()
            weights += [hour * WEEKDAYS[weekday] for hour in HOURS]
        whole = math.fsum(weights)
        bounds = [0]
        running = 0.0
        for weight in weights:
            running += weight
            bounds.append(min(self.messages, round(self.messages * running / whole)))
        bounds[-1] = self.messages
        return [
            (self.begin + 3600 * index, first, last)
            for index, (first, last) in enumerate(itertools.pairwise(bounds))
            if last > first
        ]

    def outages(self) -> list[tuple[str, int, int]]:
        """Return platform, beginning and end (seconds since the epoch) of each outage, about one a week each."""
        chance = random.Random(self.seed)
        outages = []
        for platform in _PLATFORMS:
            for _ in range(max(1, self.days // 7)):
                start = self.begin + chance.randrange(86_400 * self.days)
                outages.append((platform, start, start + 60 * chance.randint(*_OUTAGE_MINUTES)))
        return outages


def events(spark: SparkSession, plan: Plan) -> DataFrame:
    """Return the made-up events with the columns of the table ``delivery_events``."""
    messages = _messages(spark, plan)
    rows = _of_messages(messages).unionByName(_of_notifications(messages, plan))
    return rows.select(
        F.lit(_SCHEMA_VERSION).cast("smallint").alias("schema_version"),
        F.timestamp_micros((1_000_000 * F.col("seen") + 1000 * F.col("offset_ms")).cast("long")).alias("time"),
        "kind",
        "queue",
        (F.col("queue_wait_ms") / 1000).cast("float").alias("queue_wait"),
        F.when(_is_arrival(), _FIRST_SHARD + F.pmod("id", F.lit(_SHARDS))).cast("int").alias("shard"),
        F.when(_is_arrival(), F.col("age_ms") / 1000).cast("float").alias("age"),
        (F.col("offset_ms") / 1000).cast("float").alias("latency"),
        F.lit(None).cast("string").alias("app"),
        "platform",
        "push_type",
        "failure",
        "reason",
        F.col("attempt").cast("smallint").alias("attempt"),
        F.col("batch_size").cast("smallint").alias("batch_size"),
        F.lit(WORKER).alias("worker"),
        # The server keeps no name of a message that is not for us.
        F.when(F.col("fate") != "foreign", F.col("trace_id")).alias("trace_id"),
        F.lit(1).alias("count"),
        _pseudonym("user").alias("key_pseudonym"),
        _pseudonym("device").alias("installation_pseudonym"),
    )


def _is_arrival() -> Column:
    return (F.col("kind") == "received") & (F.col("fate") != "foreign")


def _pseudonym(column: str) -> Column:
    name = F.concat(F.lit(f"{column} "), F.col(column).cast("string"))
    return F.when(F.col(column).isNotNull(), F.substring(F.unhex(F.sha2(name, 256)), 1, 16))


def _chance(seed: int, name: str, *columns: str) -> Column:
    """Return a number from 0 to below 1, the same for the same columns."""
    bits = F.pmod(F.xxhash64(F.lit(seed), F.lit(name), *columns), F.lit(1 << _BITS))
    return bits / float(1 << _BITS)


def _messages(spark: SparkSession, plan: Plan) -> DataFrame:
    kind, fate = _chance(plan.seed, "kind", "id"), _chance(plan.seed, "fate", "id")
    size = _chance(plan.seed, "size", "id")
    hours = spark.createDataFrame(plan.hours(), "hour BIGINT, first BIGINT, last BIGINT")
    return (
        # By time, so that rows are written about in the order in which they happened.
        hours.repartitionByRange(max(spark.sparkContext.defaultParallelism, plan.messages // _TASK_MESSAGES), "hour")
        .sortWithinPartitions("hour")
        .select("hour", F.explode(F.expr("sequence(first, last - 1)")).alias("id"))
        .withColumn("seen", F.col("hour") + F.floor(3600 * _chance(plan.seed, "second", "id")))
        .withColumn(
            "queue", F.when(kind < 0.05, REGISTRATION.name).when(kind < 0.2, QUERY.name).otherwise(DISPATCH.name)
        )
        .withColumn(
            "fate",
            F.when(kind < 0.05, F.when(fate < 0.08, "unregistered").otherwise("registered"))
            .when(kind < 0.2, F.when(fate < 0.03, "refused").otherwise("queried"))
            .when(fate < 0.3, "foreign")
            .when(fate < 0.31, "refused")
            .otherwise("request"),
        )
        # Most requests are of one device, some of a few, and group chats have up to 60.
        .withColumn(
            "recipients",
            F.when(F.col("fate") != "request", 0)
            .when(size < 0.75, 1)
            .when(size < 0.95, 2 + F.floor(4 * _chance(plan.seed, "few", "id")))
            .otherwise(6 + F.floor(55 * F.pow(_chance(plan.seed, "group", "id"), F.lit(2)))),
        )
        .withColumn(
            "trace_id", F.substring(F.sha2(F.concat(F.lit(f"{plan.seed} "), F.col("id").cast("string")), 256), 1, 16)
        )
        .withColumn("queue_wait_ms", F.floor(5 - 22 * F.log(1 - _chance(plan.seed, "wait", "id"))))
        .withColumn("age_ms", F.round(120 - 180 * F.log(1 - _chance(plan.seed, "age", "id")), -2))
        .withColumn("batch_size", 1 + F.floor(6 * F.pow(_chance(plan.seed, "batch", "id"), F.lit(3))))
        .withColumn("member", F.floor(plan.users * _chance(plan.seed, "member", "id")))
    )


def _of_messages(messages: DataFrame) -> DataFrame:
    handled_at = F.col("queue_wait_ms") + 4
    is_ours = ~F.col("fate").isin("foreign")
    member = F.when(F.col("fate").isin("registered", "unregistered", "queried"), F.col("member"))
    platform = F.when(F.col("fate").isin("registered", "unregistered"), _platform("member"))
    failure = F.when(F.col("fate") == "foreign", Failure.NOT_FOR_US.label).when(
        F.col("fate") == "refused",
        F.when(F.col("queue") == QUERY.name, Failure.QUERY_LIMIT.label).otherwise(Failure.MESSAGE_ID_MISSING.label),
    )
    whole = F.struct(F.lit("received").alias("kind"), F.col("queue_wait_ms").alias("offset_ms"))
    outcome = F.struct(F.col("fate").alias("kind"), (handled_at + 1).alias("offset_ms"))
    steps = F.array(
        whole,
        F.when(is_ours, F.struct(F.lit("opened").alias("kind"), handled_at.alias("offset_ms"))),
        F.when(F.col("fate") != "request", outcome),
        F.when(
            F.col("fate").isin("registered", "unregistered", "queried", "request"),
            F.struct(F.lit("answered").alias("kind"), (handled_at + 6).alias("offset_ms")),
        ),
    )
    step_rows = messages.withColumn("step", F.explode(F.array_compact(steps)))
    kind = F.col("step.kind")
    about_user = kind.isin("registered", "unregistered", "queried")
    about_device = kind.isin("registered", "unregistered")
    return step_rows.select(
        "seen",
        F.col("step.offset_ms").alias("offset_ms"),
        kind.alias("kind"),
        "queue",
        F.when(kind == "received", F.col("queue_wait_ms")).alias("queue_wait_ms"),
        F.when(about_device, platform).alias("platform"),
        F.lit(None).cast("string").alias("push_type"),
        "id",
        "age_ms",
        F.when(kind.isin("foreign", "refused"), failure).alias("failure"),
        F.lit(None).cast("string").alias("reason"),
        F.lit(None).cast("int").alias("attempt"),
        "batch_size",
        "trace_id",
        "fate",
        F.when(about_user, member).alias("user"),
        F.when(about_device, member).alias("device"),
    )


def _platform(user: str) -> Column:
    return F.when(F.pmod(F.xxhash64(F.lit("platform"), user), F.lit(_PERCENT)) < 45, "ios").otherwise("android")


def _of_notifications(messages: DataFrame, plan: Plan) -> DataFrame:
    seed = plan.seed
    who = _chance(seed, "who", "id", "item")
    # One user gets a twentieth of everything, and a few get much.
    user = F.when(_chance(seed, "hot", "id", "item") < 0.05, 0).otherwise(F.floor(plan.users * F.pow(who, F.lit(2.5))))
    dies = F.when(
        F.pmod(F.xxhash64(F.lit(seed), F.lit("dies"), "user"), F.lit(_PERCENT)) < 8,
        plan.begin + F.floor(86_400 * plan.days * _chance(seed, "death", "user")),
    )
    fate = _chance(seed, "item fate", "id", "item")
    luck = _chance(seed, "luck", "id", "item")
    # Failures one after the other, each as likely as the first.
    failures = F.floor(F.log(_chance(seed, "failures", "id", "item") + 1e-12) / math.log(0.4))
    notifications = (
        messages.where("recipients > 0")
        .withColumn("item", F.explode(F.expr("sequence(1, CAST(recipients AS INT))")))
        .withColumn("user", user)
        .withColumn("platform", _platform("user"))
        .withColumn("dies", dies)
        .withColumn("over", _outage_end(plan))
        .withColumn(
            "fate",
            F.when(F.col("seen") > F.col("dies") + 21_600, "refused")
            .when(fate < 0.05, "filtered")
            .when(fate < 0.07, "refused")
            .otherwise("admitted"),
        )
        .withColumn(
            "end",
            F.when(F.col("fate") != "admitted", None)
            .when(F.col("seen") > F.col("dies"), "died")
            .when(F.col("over").isNotNull(), "delivered")
            .when(luck < 0.002, "unknown")
            .otherwise("delivered"),
        )
        .withColumn(
            "attempts",
            F.when(F.col("end").isin("died", "unknown"), 1)
            .when(F.col("over").isNotNull(), 2)
            .when(luck < 0.02, 2 + failures)
            .otherwise(1),
        )
        .withColumn("end", F.when(F.col("attempts") > _MOST_ATTEMPTS, "dead_letter").otherwise(F.col("end")))
        .withColumn("attempts", F.least("attempts", F.lit(_MOST_ATTEMPTS)).cast("int"))
        .withColumn("post_ms", F.floor(25 - 30 * F.log(1 - _chance(seed, "post", "id", "item"))))
    )
    return _explode_attempts(notifications)


def _outage_end(plan: Plan) -> Column:
    end = F.lit(None).cast("long")
    for platform, start, stop in plan.outages():
        inside = (F.col("platform") == platform) & F.col("seen").between(start, stop - 1)
        end = F.when(inside, F.lit(stop)).otherwise(end)
    return end


_STEPS: Final = f"""
flatten(array(
    array(named_struct('kind', fate, 'offset_ms', queue_wait_ms + 6, 'attempt', CAST(NULL AS INT),
        'failure', IF(fate = 'refused', '{Failure.NOT_REGISTERED.label}', CAST(NULL AS STRING)))),
    IF(fate = 'admitted', flatten(transform(sequence(1, attempts), n -> array(
        named_struct('kind', 'attempt', 'offset_ms', begun(n), 'attempt', n, 'failure', CAST(NULL AS STRING)),
        named_struct(
            'kind', CASE WHEN n < attempts OR end IN ('died', 'dead_letter') THEN 'failed' ELSE end END,
            'offset_ms', begun(n) + post_ms,
            'attempt', n,
            'failure', CASE WHEN end = 'died' THEN '{Failure.TOKEN_UNREGISTERED.label}'
                WHEN n < attempts OR end = 'dead_letter' THEN '{Failure.PLATFORM_UNAVAILABLE.label}'
                WHEN end = 'unknown' THEN '{Failure.GORUSH_TIMED_OUT.label}' END
        )))), array()),
    IF(end = 'died', array(named_struct('kind', '{EventKind.TOKEN_DIED.value}', 'offset_ms', begun(1) + post_ms,
        'attempt', 1, 'failure', '{Failure.TOKEN_UNREGISTERED.label}')), array()),
    IF(end = 'dead_letter', array(named_struct('kind', 'dead_letter', 'offset_ms', begun(attempts) + post_ms,
        'attempt', attempts, 'failure', '{Failure.ATTEMPTS_EXHAUSTED.label}')), array())
))
"""
#: Milliseconds from seeing a message to an attempt; after an outage everything comes within two minutes.
_ATTEMPT_OFFSET_MS: Final = (
    "(queue_wait_ms + 8 + IF({n} = 1, 0, IF(over IS NOT NULL, 1000 * (over - seen) + pmod(id * 7919, 120000),"
    " CAST(2000 * (pow(2, {n} - 1) - 1) AS BIGINT))))"
)


def _explode_attempts(notifications: DataFrame) -> DataFrame:
    steps = _STEPS
    for name in ("n", "1", "attempts"):
        steps = steps.replace(f"begun({name})", _ATTEMPT_OFFSET_MS.format(n=name))
    kinds = [F.lit(kind.label) for kind in _PUSH_TYPES]
    push_type = F.element_at(F.array(*kinds), (1 + F.pmod("id", F.lit(len(kinds)))).cast("int"))
    reason = F.when(
        F.col("step.kind") == "filtered", F.when(F.pmod("id", F.lit(3)) == 0, "disabled").otherwise("muted_chat")
    )
    return notifications.withColumn("step", F.explode(F.expr(steps))).select(
        "seen",
        F.col("step.offset_ms").alias("offset_ms"),
        F.col("step.kind").alias("kind"),
        F.lit(DISPATCH.name).alias("queue"),
        F.lit(None).cast("long").alias("queue_wait_ms"),
        F.when(~F.col("step.kind").isin("filtered", "refused"), F.col("platform")).alias("platform"),
        F.when(~F.col("step.kind").isin("filtered", "refused"), push_type).alias("push_type"),
        "id",
        "age_ms",
        F.col("step.failure").alias("failure"),
        reason.alias("reason"),
        F.col("step.attempt").alias("attempt"),
        "batch_size",
        "trace_id",
        "fate",
        "user",
        F.col("user").alias("device"),
    )
