"""Alerts and queries of ScaledObjects as the chart renders them, answered by promtool on made-up series."""

import json
import os
import shutil
import subprocess

import pytest

from deploy.monitoring.rules import COMPONENTS
from support.deploy.chart import ROOT, VALUES, need, objects, of_kind

need("helm")
#: Where `make setup-promtool` puts it if the machine has none.
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=ROOT / "tests" / "monitoring" / "bin")
if not PROMTOOL and os.environ.get("CI") != "true":
    pytest.skip("install promtool, or run as root on Debian: make setup-promtool", allow_module_level=True)


def run(folder, test, **fields):
    """Let promtool run a test."""
    content = {"evaluation_interval": "1m", "tests": [{"interval": "1m"} | test]} | fields
    (folder / "test.json").write_text(json.dumps(content))
    command = [PROMTOOL, "test", "rules", folder / "test.json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


#: Of the release that is rendered.
NAMESPACE = "push"


def groups(*options):
    [rule] = of_kind(objects(VALUES["keda"], *options), "PrometheusRule").values()
    return rule["spec"]["groups"]


def missing(*options):
    """The components whose absence raises an alert."""
    rules = [rule for group in groups(*options) for rule in group["rules"]]
    assert len(rules) > 30
    return {rule["labels"]["component"] for rule in rules if "component" in rule.get("labels", {})}


def test_what_is_not_deployed_is_not_missing():
    assert missing() == COMPONENTS.keys()
    options = ("--set", "components.feedback.enabled=false", "--set", "components.reconcile.enabled=false")
    assert missing(*options) == COMPONENTS.keys() - {"feedback", "reconcile"}


def all_series(namespace, values):
    return [
        {"series": series % f'namespace="{namespace}"', "values": values}
        for series, _ in COMPONENTS.values()
        if "poll" not in series
    ]


def ingest(namespace, values):
    return [{"series": COMPONENTS["ingest"][0] % f'namespace="{namespace}"', "values": values}]


ALL = [{"labels": f'{{namespace="{NAMESPACE}", component="{each}"}}', "value": 1} for each in COMPONENTS]
INGEST = ALL[:1]
BESIDE = [*all_series("other", "1x30"), *ingest("other", "0+60x30")]
CASES = {
    "none": ([*BESIDE, *all_series(NAMESPACE, "1x30"), *ingest(NAMESPACE, "0+60x30")], []),
    "ingest ends": ([*BESIDE, *all_series(NAMESPACE, "1x30"), *ingest(NAMESPACE, "0+60x10 stale")], INGEST),
    "ingest never began": ([*BESIDE, *all_series(NAMESPACE, "1x30")], INGEST),
    "the whole release ends": ([*BESIDE, *all_series(NAMESPACE, "1x10 stale"), *ingest(NAMESPACE, "0x10 stale")], ALL),
    "that of another release ends": (
        [*all_series(NAMESPACE, "1x30"), *ingest(NAMESPACE, "0+60x30"), *ingest("other", "0+60x10 stale")],
        [],
    ),
}


@pytest.mark.parametrize(("series", "expected"), CASES.values(), ids=CASES.keys())
def test_missing_process_shows_beside_another_release(series, expected, tmp_path):
    (tmp_path / "rules.json").write_text(json.dumps({"groups": groups()}))
    firing = 'ALERTS{alertname="WakupushProcessMissing", alertstate="firing"}'
    expression = {"expr": f"count by (namespace, component) ({firing})", "eval_time": "25m", "exp_samples": expected}
    run(tmp_path, {"input_series": series, "promql_expr_test": [expression]}, rule_files=["rules.json"])


def query(pool):
    triggers = of_kind(objects(VALUES["keda"]), "ScaledObject")[f"wakupush-{pool}"]["spec"]["triggers"]
    [query] = [trigger["metadata"]["query"] for trigger in triggers if trigger["type"] == "prometheus"]
    return query


def series(name, value, **labels):
    """A series as Prometheus has it of a pod in the namespace of the release."""
    labels |= {"namespace": "push", "pod": f"wakupush-{name}"}
    text = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"wakupush_{name}{{{text}}}", "values": f"{value} {value}"}


def waiting(pool, queued, under_way):
    return [series("queue_messages", queued, queue=pool), series("in_flight_messages", under_way, queue=pool)]


def due_deliveries(**platforms):
    """Due deliveries of each platform, and the state of its breaker."""
    for platform, (count, breaker) in platforms.items():
        yield series("deliveries_due", count, platform=platform)
        yield series("breaker_state", breaker, platform=platform)


OPEN, CLOSED = 2, 0
DISPATCH = waiting("dispatch", 10, 5)
QUERIES = {
    "waiting and under way": ("query", waiting("query", 10, 5), 15),
    "another pool's do not count": ("query", waiting("query", 1, 1) + DISPATCH, 2),
    "due deliveries of all platforms": (
        "dispatch",
        [*DISPATCH, *due_deliveries(ios=(7, CLOSED), android=(100, CLOSED))],
        122,
    ),
    "not those behind an open breaker": (
        "dispatch",
        [*DISPATCH, *due_deliveries(ios=(7, CLOSED), android=(100, OPEN))],
        22,
    ),
    "both breakers open": ("dispatch", [*DISPATCH, *due_deliveries(ios=(7, OPEN), android=(100, OPEN))], 15),
    "no breaker was ever read": ("dispatch", [*DISPATCH, series("deliveries_due", 7, platform="ios")], 22),
    # No figure at all: KEDA falls back, instead of scaling down on half of the truth.
    "Redis does not answer the exporter": ("dispatch", [*due_deliveries(ios=(7, CLOSED))], None),
    "Postgres does not answer the exporter": ("dispatch", DISPATCH, None),
    "Postgres does not matter to the others": ("query", waiting("query", 10, 5), 15),
    "no exporter": ("registration", [], None),
}


@pytest.mark.parametrize(("pool", "input_series", "expected"), QUERIES.values(), ids=QUERIES.keys())
def test_a_query_asks_for_what_waits_and_is_under_way(pool, input_series, expected, tmp_path):
    samples = [] if expected is None else [{"labels": "{}", "value": expected}]
    expression = {"expr": query(pool), "eval_time": "1m", "exp_samples": samples}
    run(tmp_path, {"input_series": input_series, "promql_expr_test": [expression]})
