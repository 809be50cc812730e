"""Every counter that an alert looks at exists at 0 before it counts: `increase` does not see where a series begins."""

import ast
import re
from collections import defaultdict
from itertools import chain, product
from pathlib import Path

import pytest

from deploy.monitoring.rules import ALERTS, OBJECTIVES
from wakupush.canary.canary import of_canary
from wakupush.ingest.counters import of_enqueueing, of_live, of_reconcile
from wakupush.model.queues import QUEUES
from wakupush.runtime import counters, metrics
from wakupush.runtime.settings import CanarySettings, Settings, WakuSettings
from wakupush.server.delivery.webhook import FeedbackResult
from wakupush.workers.counters import of_beat, of_publishing, of_worker

ROOT = Path(__file__).parents[3]
COUNTERS = {
    f"{metric._name}_total": (name, metric)
    for name, metric in vars(metrics).items()
    if isinstance(metric, metrics.Counter) and metric._labelnames
}
EXPRESSIONS = [
    *(alert.expr for alert in ALERTS),
    *(expr for objective in OBJECTIVES for _, expr in objective.records()),
]
#: What alerts look at: each counter, with each value that one of its labels has to have.
LOOKED_AT = {
    (name, label, value)
    for expr in EXPRESSIONS
    for name, matchers in re.findall(r"\b(wakupush_\w+_total)\b(\{[^}]*\})?", expr)
    if name in COUNTERS
    for label, pattern in re.findall(r'(\w+)=~?"([^"]*)"', matchers) or [("", "")]
    for value in pattern.split("|")
}


@pytest.fixture(scope="module")
def first_rows():
    """The labels of all series that are created, by their counter."""
    settings = Settings(
        waku=WakuSettings(url=("http://a:1", "http://b:1"), shards=("/waku/2/rs/16/32",)),
        canary=CanarySettings(gorush_url="http://c:1"),
    )
    tables = [
        *(of_enqueueing(), of_live(settings), of_reconcile(settings)),
        *(of_worker(queue, settings) for queue in QUEUES.values()),
        of_canary(settings),
        *(of_publishing(settings), of_beat(), {metrics.FEEDBACK: product(FeedbackResult)}),
    ]
    rows_by_counter = defaultdict(list)
    for counter, rows in chain.from_iterable(table.items() for table in tables):
        rows_by_counter[counter] += [dict(zip(counter._labelnames, map(str, row), strict=True)) for row in rows]
    return rows_by_counter


@pytest.mark.parametrize(("name", "label", "value"), sorted(LOOKED_AT))
def test_a_counter_of_an_alert_begins_at_zero(first_rows, name, label, value):
    rows = first_rows[COUNTERS[name][1]]
    # A label that is not the counter's is Prometheus' own, or there is none.
    assert value in {row[label] for row in rows} if label in COUNTERS[name][1]._labelnames else rows


@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES)
def test_a_pool_may_leave_messages_of_each_kind_to_rest(queue):
    assert sorted(of_worker(queue, Settings())[metrics.MESSAGES_TO_REST]) == sorted((name,) for name in QUEUES)


def literals():
    """Yield each label value that stands in the code, with the name of its counter in the table and its position."""
    names = {name for name, _ in COUNTERS.values()}
    for folder in ("wakupush", "ingest", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                match node:
                    case ast.Call(func=ast.Attribute(ast.Attribute(attr=name), "labels"), args=arguments):
                        for position, argument in enumerate(arguments if name in names else ()):
                            parts = [argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument]
                            for part in parts:
                                if isinstance(part, ast.Constant):
                                    yield name, position, part.value


def test_what_is_counted_was_begun(first_rows):
    uses = list(literals())
    assert len(uses) > 10
    for name, position, value in uses:
        counter = getattr(metrics, name)
        label = counter._labelnames[position]
        assert value in {row[label] for row in first_rows[counter]}, (name, label)


def test_what_was_counted_stays():
    counter = metrics.Counter("test_what_was_counted_stays", "A counter.", ["label"], registry=None)
    counter.labels("a").inc(3)
    counters.begin({counter: [("a",), ("b",)]})
    assert {sample.labels["label"]: sample.value for sample in counter.collect()[0].samples} == {"a": 3, "b": 0}
