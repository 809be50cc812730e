"""``wakupush pipeline capacity``: computes how many replicas each pool needs, and checks it on later days.

The model is a queue that is simulated second by second. A message arrives at the time of `received` less its wait, and
brings work: the CPU time that it costs. A pool works off as much as its processes can. The wait of a message is the
work before it divided by the speed. No distribution is assumed: bursts are those of the real events.

A pool's plan has, for each hour of the week, the least number of processes with which the wanted p99 holds in the
earlier half of the days. The later half is then simulated with this plan.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

import numpy as np
import yaml
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody names it

from wakupush.model.queues import DISPATCH, QUERY, QUEUES, REGISTRATION
from wakupush.pipeline.errors import PipelineError
from wakupush.pipeline.lake.lake import Lake, of_days
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
#: The loads of the benchmark that measure them.
BENCH_LOADS: Final = {
    REGISTRATION.name: "first registrations",
    QUERY.name: "queries of one key",
    DISPATCH.name: "push requests, gorush at once",
    "foreign": "foreign messages",
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
#: Hours.
_WEEK: Final = 168
_P99: Final = 0.99
#: Sums of floats differ by so small a part.
_ROUNDING: Final = 1e-9
#: Into how many parts the messages of a second are divided, each with its own wait.
_PARTS: Final = 4

Numbers: TypeAlias = NDArray[np.float64]


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
class Load:
    """The arrivals of each second that has some, in order: four arrays of the same length."""

    #: Seconds since the epoch, whole.
    time: Numbers
    messages: Numbers
    #: Seconds of CPU time.
    work: Numbers
    #: Attempts to push.
    posts: Numbers

    def part(self, rows: slice) -> "Load":
        """Return some of the seconds."""
        return Load(time=self.time[rows], messages=self.messages[rows], work=self.work[rows], posts=self.posts[rows])


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How long messages waited: two arrays of the same length."""

    #: Seconds, to the millisecond.
    seconds: Numbers
    #: Messages that waited so long.
    messages: Numbers

    @property
    def p99(self) -> float:
        """The least wait that at least 99 % of the messages do not exceed; 0 without messages."""
        if not self.messages.sum():
            return 0.0
        order = np.argsort(self.seconds)
        counts = np.cumsum(self.messages[order])
        place = np.searchsorted(counts, _P99 * counts[-1] * (1 - _ROUNDING))
        return float(self.seconds[order][place])

    def share_above(self, limit: float) -> float:
        """Return the share of messages that waited longer; 0 without messages."""
        total = self.messages.sum()
        return float(self.messages[self.seconds > limit].sum() / total) if total else 0.0


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
    #: Processes by the simple formula: the mean work of the busiest hour, at most `USE` of the time.
    mean_processes: int
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


def costs(bench: Path | None, options: Iterable[str]) -> dict[str, float]:
    """Return the costs of a message on an operator's machines.

    Args:
        bench: what ``python -m benchmarks.bench --json`` wrote; the rest is as in `COSTS`.
        options: costs in milliseconds, written as ``dispatch=0.9``; they win.

    Raises:
        PipelineError: a file or an option cannot be read.
    """
    amounts = COSTS | (_benchmark_costs(bench) if bench is not None else {})
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


def _benchmark_costs(path: Path) -> dict[str, float]:
    """Return the CPU time of workers for the loads in a file of figures, medians of its runs with one process."""
    try:
        runs = json.loads(path.read_text())
        amounts = {
            name: median(
                sum(micros for process, micros in run["cpu"].items() if process.startswith("worker"))
                for run in runs[f"{load}, 1"]
            )
            / 1e6
            for name, load in BENCH_LOADS.items()
            if f"{load}, 1" in runs
        }
    except OSError as error:
        raise PipelineError(f"--bench {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        amounts = {}
    if not amounts or not all(0 < seconds < 1 for seconds in amounts.values()):
        raise PipelineError(f"--bench {path}: these are not figures of `python -m benchmarks.bench --json`")
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
    for count, queue in enumerate(QUEUES, 1):
        with lake.naming_damage(of_days(*days)):
            arrivals, batch = _load(events, queue, question)
        if len(arrivals.time):
            pools.append(_plan(queue, arrivals, batch, _epoch(middle), question))
        progress(count, len(QUEUES))
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


def _load(events: DataFrame, queue: str, question: Question) -> tuple[Load, float]:
    """Return the arrivals of a queue, and the mean size of a batch."""
    rows = load(events, queue).orderBy("second").toArrow()
    column = {name: rows[name].to_numpy().astype(float) for name in rows.column_names}
    own = np.maximum(0, column["messages"] - column["foreign"])
    cost = question.costs
    work = own * cost[queue] + column["foreign"] * cost["foreign"] + column["again"] * cost["again"]
    arrivals = Load(
        time=column["second"],
        messages=column["messages"] * question.users,
        work=work * question.users,
        posts=column["attempts"] * question.users,
    )
    return arrivals, float(np.nansum(column["batches"]) / max(1.0, column["messages"].sum()))


def _plan(queue: str, arrivals: Load, batch: float, middle: int, question: Question) -> Pool:
    split = int(np.searchsorted(arrivals.time, middle))
    earlier, later = arrivals.part(slice(None, split)), arrivals.part(slice(split, None))
    processes: dict[int, int] = {}
    means: list[float] = []
    for of_hour in _hours(earlier):
        hour = int(hours_of_week(of_hour.time[:1])[0])
        processes[hour] = max(processes.get(hour, 1), enough(of_hour, question, batch))
        means.append(float(of_hour.work.sum()) / _HOUR / USE)
    usual = max(processes.values(), default=CONCURRENCY * LEAST_REPLICAS)
    running = {hour: max(CONCURRENCY * LEAST_REPLICAS, count) for hour, count in processes.items()}
    planned = np.array([running.get(hour, usual) for hour in range(_WEEK)])
    waits = play(later, planned[hours_of_week(later.time)], question, batch)
    messages = float(arrivals.messages.sum())
    return Pool(
        queue=queue,
        messages=round(messages),
        batch=batch,
        cost=float(arrivals.work.sum()) / max(1.0, messages),
        processes=dict(sorted(processes.items())),
        mean_processes=max(1, math.ceil(max(means, default=0.0))),
        p99_wait=waits.p99 if waits.messages.sum() else None,
        late=waits.share_above(question.wait),
    )


def _hours(arrivals: Load) -> Iterator[Load]:
    """Yield the seconds of each hour that has some."""
    _, begins = np.unique(arrivals.time // _HOUR, return_index=True)
    for begin, end in pairwise([*begins, len(arrivals.time)]):
        yield arrivals.part(slice(begin, end))


def hours_of_week(time: Numbers) -> NDArray[np.int_]:
    """Return the hours of the week (0 is Monday's first) of times in seconds since the epoch, which was a Thursday."""
    return (time.astype(int) // _HOUR + 3 * 24) % _WEEK


def enough(arrivals: Load, question: Question, batch: float) -> int:
    """Return the least number of processes with which the wanted p99 holds over some seconds.

    Raises:
        PipelineError: more than `_MOST_PROCESSES` would be needed.
    """
    low, high = 1, 1
    while play(arrivals, high, question, batch).p99 > question.wait:
        if high >= _MOST_PROCESSES:
            raise PipelineError(
                f"more than {_MOST_PROCESSES} processes would be needed: look at --wait, --cost, --gorush"
            )
        low, high = high + 1, high * 2
    while low < high:
        middle = (low + high) // 2
        if play(arrivals, middle, question, batch).p99 > question.wait:
            low = middle + 1
        else:
            high = middle
    return low


def play(arrivals: Load, processes: int | NDArray[np.int_], question: Question, batch: float) -> Waits:
    """Simulate seconds, and return how long messages waited.

    A second's messages come at its beginning, which is the worst case. Each post occupies one of a process's
    connections, so a slow gorush makes dispatch slower only if there are too few connections.

    Args:
        processes: one number, or one for each second.
    """
    speed = USE * np.broadcast_to(processes, arrivals.time.shape)
    of_posts = speed * question.connections / USE
    duration = arrivals.posts / max(1.0, batch) * question.gorush
    share = (np.arange(_PARTS, dtype=np.float64)[:, np.newaxis] + 0.5) / _PARTS
    of_work = (_left(arrivals.time, arrivals.work, speed) + share * arrivals.work) / speed
    posting = (_left(arrivals.time, duration, of_posts) + share * duration) / of_posts
    seconds: Numbers = np.maximum(of_work, posting)
    return Waits(
        seconds=np.round(seconds, 3).ravel(),
        messages=np.broadcast_to(arrivals.messages / _PARTS, of_work.shape).ravel(),
    )


def _left(time: Numbers, amount: Numbers, speed: Numbers) -> Numbers:
    """Return how much of what came before is left when each second begins.

    What is left is what came less what could be done, above the least value that this had until then.
    """
    if not len(time):
        return time
    change = amount[:-1] - speed[1:] * np.diff(time)
    total = np.concatenate(([0.0], np.cumsum(change)))
    return total - np.minimum.accumulate(total)


def describe(plan: CapacityPlan) -> str:
    """Return a plan for people, and as values of the chart."""
    question = plan.question
    lines = [
        f"# wanted p99 of the wait in a queue: {question.wait:g} s; {question.users:g} times the users;",
        f"# gorush answers in {1000 * question.gorush:g} ms",
        "#",
        "# pool           messages  ms each  busiest hour   by its mean  quietest  checked on the later half",
    ]
    for pool in plan.pools:
        replicas = pool.replicas or {0: LEAST_REPLICAS}
        busiest = max(replicas, key=lambda hour: (replicas[hour], -hour))
        by_mean = max(LEAST_REPLICAS, -(-pool.mean_processes // CONCURRENCY))
        check_result = (
            "nothing came" if pool.p99_wait is None else f"p99 {pool.p99_wait:g} s, {100 * pool.late:.2f} % later"
        )
        lines.append(
            f"# {pool.queue:<13}{pool.messages:>10,}{1000 * pool.cost:>9.2f}{replicas[busiest]:>6}"
            f" ({_hour_name(busiest)}){by_mean:>14}{min(replicas.values()):>10}  {check_result}"
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
