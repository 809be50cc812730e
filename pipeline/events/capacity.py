"""``wakupush pipeline capacity``: computes how many replicas each pool needs, and checks it on later days.

The model is a queue that is simulated second by second. A message arrives at the time of `received` less its wait, and
brings work: the CPU time that it costs. A pool works off as much as its processes can. The wait of a message is the
work before it divided by the speed. No distribution is assumed: bursts are those of the real events.

A pool's plan has, for each hour of the week, the least number of processes with which the wanted p99 holds in the
earlier half of the days. The later half is then simulated with this plan.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import yaml
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from wakupush.model.queues import DISPATCH, QUERY, QUEUES, REGISTRATION
from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.events.lake import Lake, of_days
from wakupush.runtime.settings import Settings

#: Seconds of CPU time that a worker spends on a message, by queue; on one that is not for us; on an attempt made again.
#: Measured by `make bench`, see docs/internals/performance.md.
COSTS: Final = {
    REGISTRATION.name: 0.000945,
    QUERY.name: 0.000460,
    DISPATCH.name: 0.000716,
    "foreign": 0.000125,
    "again": 0.000160,
}
#: Processes of a replica, as in the chart.
CONCURRENCY: Final = 2
#: Replicas of a pool at least: clients wait only 3 s, and a pod may be moved.
LEAST_REPLICAS: Final = 2
#: The share of the time that a process may work; the rest covers the model's omissions.
USE: Final = 0.7
#: Processes of the pool `rest` at once, in an upgrade: it posts too, and is not scaled.
REST_PROCESSES: Final = 3
#: Notifications that gorush's queue holds, as in the chart.
GORUSH_QUEUE: Final = 32768
_MOST_PROCESSES: Final = 4096
_HOUR: Final = 3600
_P99: Final = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question that the plan answers."""

    #: Wanted p99 of the wait in a queue, seconds.
    wait: float
    #: Factor by which the number of users is multiplied.
    users: float
    #: Seconds that gorush takes to answer a post.
    gorush: float
    #: As `COSTS`.
    costs: Mapping[str, float]
    #: Posts that a dispatch process keeps open at the same time, and notifications of each at most.
    connections: int
    notifications: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """The arrivals of a second."""

    #: Seconds since the epoch.
    time: int
    messages: float
    #: Seconds of CPU time.
    work: float
    #: Attempts to push.
    posts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The plan of a pool."""

    queue: str
    messages: int
    #: Messages of a task, on average.
    batch: float
    #: Seconds of CPU time of a message, on average.
    cost: float
    #: Processes by hour of the week, 0 is Monday's first; hours without a message are not in it.
    processes: Mapping[int, int]
    #: p99 of the wait in the later half, simulated with the plan, in seconds; None if there were no messages.
    p99_wait: float | None
    #: Share of the later half's messages that waited longer than wanted.
    late: float

    @property
    def replicas(self) -> dict[int, int]:
        """Replicas by hour of the week."""
        return {hour: max(LEAST_REPLICAS, -(-count // CONCURRENCY)) for hour, count in self.processes.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """The answer."""

    question: Question
    pools: tuple[Pool, ...]


def costs(options: Iterable[str]) -> dict[str, float]:
    """Return the costs with those that an operator measured, written as ``dispatch=0.9`` in milliseconds.

    Raises:
        PipelineError: one is not written in this form.
    """
    amounts = dict(COSTS)
    for option in options:
        name, _, value = option.partition("=")
        try:
            seconds = float(value) / 1000
        except ValueError:
            seconds = math.nan
        if name not in COSTS or not (seconds > 0 and math.isfinite(seconds)):
            raise PipelineError(f"--cost is NAME=MILLISECONDS, with a name of {', '.join(COSTS)}")
        amounts[name] = seconds
    return amounts


def run(
    spark: SparkSession,
    settings: Settings,
    days: tuple[date, date],
    question: Question,
    progress: Callable[[int, int], None],
) -> CapacityPlan:
    """Plan every pool by the load of some days, both ends included.

    Raises:
        PipelineError: there are fewer than two days with events.
    """
    lake = Lake.of(spark, settings)
    with_events = [day for day in lake.sizes() if days[0] <= day <= days[1]]
    if len(with_events) < 2:  # noqa: PLR2004 - one to learn from, one to check on
        raise PipelineError(f"{days[0]} to {days[1]}: {len(with_events)} days have events; a plan needs two or more")
    middle = with_events[len(with_events) // 2]
    events = lake.events().where(F.col("day").between(*days))
    pools: list[Pool] = []
    progress(0, len(QUEUES))
    for queue in QUEUES:
        with lake.naming_damage(of_days(*days)):
            seconds = _seconds(events, queue, question)
        if seconds[0]:
            pools.append(_plan(queue, seconds, _epoch(middle), question))
        progress(len(pools), len(QUEUES))
    return CapacityPlan(question=question, pools=tuple(pools))


def _epoch(day: date) -> int:
    return day.toordinal() * 86_400 - 719_163 * 86_400


def load(events: DataFrame, queue: str) -> DataFrame:
    """Return for each second with arrivals: messages, those not for us, attempts, and attempts made again.

    A message arrives when ingest saw it. The lake has only the hour of attempts, because they name users: they are
    shared out among the hour's messages. Attempts of an hour without messages are left out: no message waits for them.
    """
    of_queue = events.where(F.col("queue") == queue)
    wait = F.coalesce(F.when(F.col("kind") == "received", F.col("queue_wait_ms")), "latency_ms", F.lit(0))
    arrivals = (
        of_queue.where(F.col("kind").isin("received", "foreign"))
        .withColumn("second", F.unix_timestamp("time") - F.round(wait / 1000).cast("long"))
        .groupBy("second")
        .agg(
            _number(F.col("kind") == "received").alias("messages"),
            _number(F.col("kind") == "foreign").alias("foreign"),
            F.sum(F.when(F.col("kind") == "received", F.col("batch_size") * F.col("count"))).alias("batches"),
        )
        .withColumn("hour", F.floor(F.col("second") / _HOUR))
    )
    entries = (
        of_queue.where(F.col("kind") == "attempt")
        .groupBy(F.floor(F.unix_timestamp("time") / _HOUR).alias("hour"))
        .agg(F.sum("count").alias("attempts"), _number(F.col("attempt") > 1).alias("again"))
    )
    share = F.try_divide("messages", F.sum("messages").over(Window.partitionBy("hour")))
    shares = (F.coalesce(share * F.col(name), F.lit(0.0)).alias(name) for name in ("attempts", "again"))
    return arrivals.join(entries, "hour", "left").select("second", "messages", "foreign", *shares, "batches")


def _number(condition: Column) -> Column:
    """Return how many messages or attempts are counted by the events that meet a condition."""
    return F.coalesce(F.sum(F.when(condition, F.col("count"))), F.lit(0))


def _seconds(events: DataFrame, queue: str, question: Question) -> tuple[list[Second], float]:
    """Return the arrivals of each second, in order, and the mean size of a batch."""
    seconds = []
    batches = messages = 0
    cost = question.costs
    for row in load(events, queue).orderBy("second").toLocalIterator():
        own = row["messages"] - row["foreign"]
        work = max(0, own) * cost[queue] + row["foreign"] * cost["foreign"] + row["again"] * cost["again"]
        seconds.append(
            Second(
                time=row["second"],
                messages=row["messages"] * question.users,
                work=work * question.users,
                posts=row["attempts"] * question.users,
            )
        )
        batches += row["batches"] or 0
        messages += row["messages"]
    return seconds, batches / max(1, messages)


def _plan(queue: str, load: tuple[list[Second], float], middle: int, question: Question) -> Pool:
    seconds, batch = load
    earlier: dict[int, dict[int, list[Second]]] = defaultdict(lambda: defaultdict(list))
    later = [second for second in seconds if second.time >= middle]
    for second in seconds:
        if second.time < middle:
            earlier[hour_of_week(second.time)][second.time // _HOUR].append(second)
    processes = {
        hour: max(enough(seconds_of_hour, question, batch) for seconds_of_hour in hours.values())
        for hour, hours in earlier.items()
    }
    usual = max(processes.values(), default=CONCURRENCY * LEAST_REPLICAS)
    running = {hour: max(CONCURRENCY * LEAST_REPLICAS, count) for hour, count in processes.items()}
    waits = play(later, lambda time: running.get(hour_of_week(time), usual), question, batch)
    total = sum(waits.values())
    messages = sum(second.messages for second in seconds)
    return Pool(
        queue=queue,
        messages=round(messages),
        batch=batch,
        cost=sum(second.work for second in seconds) / max(1.0, messages),
        processes=processes,
        p99_wait=percentile(waits, _P99) if total else None,
        late=sum(count for wait, count in waits.items() if wait > question.wait) / total if total else 0.0,
    )


def hour_of_week(time: int) -> int:
    """Return the hour of the week (0 is Monday's first) of a time in seconds since the epoch, which was a Thursday."""
    return (time // _HOUR + 3 * 24) % 168


def enough(seconds: list[Second], question: Question, batch: float) -> int:
    """Return the least number of processes with which the wanted p99 holds over some seconds.

    Raises:
        PipelineError: more than `_MOST_PROCESSES` would be needed.
    """
    low, high = 1, 1
    while percentile(play(seconds, lambda _: high, question, batch), _P99) > question.wait:  # noqa: B023 - used at once
        if high >= _MOST_PROCESSES:
            raise PipelineError(
                f"more than {_MOST_PROCESSES} processes would be needed: look at --wait, --cost, --gorush"
            )
        low, high = high + 1, high * 2
    while low < high:
        middle = (low + high) // 2
        if percentile(play(seconds, lambda _: middle, question, batch), _P99) > question.wait:  # noqa: B023 - the same
            low = middle + 1
        else:
            high = middle
    return low


def play(
    seconds: Iterable[Second], processes: Callable[[int], int], question: Question, batch: float
) -> dict[float, float]:
    """Simulate seconds, and return how many messages waited how long (seconds, to the millisecond).

    A second's messages come at its beginning, which is the worst case. Each post occupies one of a process's
    connections, so a slow gorush makes dispatch slower only if there are too few connections.
    """
    waits: dict[float, float] = defaultdict(float)
    backlog = posting = 0.0
    before: int | None = None
    for second in seconds:
        speed = USE * processes(second.time)
        if before is not None:
            backlog = max(0.0, backlog - speed * (second.time - before))
            posting = max(0.0, posting - speed * question.connections / USE * (second.time - before))
        before = second.time
        duration = second.posts / max(1.0, batch) * question.gorush
        for part in range(_PARTS):
            share = (part + 0.5) / _PARTS
            of_work = (backlog + share * second.work) / speed
            of_posts = (posting + share * duration) / (speed * question.connections / USE)
            waits[round(max(of_work, of_posts), 3)] += second.messages / _PARTS
        backlog += second.work
        posting += duration
    return waits


#: Into how many parts the messages of a second are divided, each with its own wait.
_PARTS: Final = 4


def percentile(counts: Mapping[float, float], share: float) -> float:
    """Return the least value that at least this share of the counted ones does not exceed; 0 if nothing is counted."""
    rest = share * sum(counts.values())
    for value in sorted(counts):
        rest -= counts[value]
        if rest <= 1e-9:  # noqa: PLR2004 - sums of floats
            return value
    return 0.0


def describe(plan: CapacityPlan) -> str:
    """Return a plan for people, and as values of the chart."""
    question = plan.question
    lines = [
        f"# wanted p99 of the wait in a queue: {question.wait:g} s; {question.users:g} times the users;",
        f"# gorush answers in {1000 * question.gorush:g} ms",
        "#",
        "# pool          messages  ms each  busiest hour  quietest  checked on the later half",
    ]
    for pool in plan.pools:
        replicas = pool.replicas or {0: LEAST_REPLICAS}
        busiest = max(replicas, key=lambda hour: (replicas[hour], -hour))
        check_result = (
            "nothing came" if pool.p99_wait is None else f"p99 {pool.p99_wait:g} s, {100 * pool.late:.2f} % later"
        )
        lines.append(
            f"# {pool.queue:<13}{pool.messages:>9,}{1000 * pool.cost:>9.2f}"
            f"{replicas[busiest]:>8} ({_hour_name(busiest)}){min(replicas.values()):>7}  {check_result}"
        )
    text: str = yaml.safe_dump(values(plan), sort_keys=False)
    return "\n".join([*lines, text.rstrip()])


def values(plan: CapacityPlan) -> dict[str, Any]:
    """Return a plan as values of the chart.

    Gorush's queue has to hold what all dispatch processes post at the same time, or it never answers. During an upgrade
    one pod more starts, and all the old ones may still be finishing their posts.
    """
    components = {pool.queue: _component(pool, plan.question) for pool in plan.pools}
    content: dict[str, Any] = {"components": components}
    if DISPATCH.name in components:
        replicas = max(components[DISPATCH.name]["replicas"], components[DISPATCH.name]["autoscaling"]["maxReplicas"])
        processes = (2 * replicas + 1) * CONCURRENCY + REST_PROCESSES
        notifications = processes * plan.question.connections * plan.question.notifications
        content["gorush"] = {"queueNum": max(GORUSH_QUEUE, notifications)}
    return content


def _component(pool: Pool, question: Question) -> dict[str, Any]:
    """Return the values of a pool: a process works off its threshold of messages within the wanted wait."""
    replicas = pool.replicas.values()
    most = max(replicas, default=LEAST_REPLICAS)
    least = min(replicas, default=LEAST_REPLICAS)
    messages = max(1, math.floor(question.wait * USE / pool.cost)) if pool.cost else 1
    return {
        "replicas": most,
        "concurrency": CONCURRENCY,
        "autoscaling": {
            "minReplicas": least,
            # Rare peaks are larger than those of these days.
            "maxReplicas": max(least + 1, math.ceil(1.5 * most)),
            "messagesPerProcess": messages,
            "tasks": max(1, math.floor(messages * CONCURRENCY / max(1.0, pool.batch))),
            "fallbackReplicas": most,
        },
    }


def _hour_name(hour: int) -> str:
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[hour // 24]
    return f"{day} {hour % 24:02}h"
