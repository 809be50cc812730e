"""The alerts as the chart renders them, raised by promtool: the one of processes that are missing knows its release."""

import json
import os
import shutil
import subprocess

import pytest

from deploy.monitoring.rules import COMPONENTS
from support.deploy.chart import ROOT, VALUES, need, objects

need("helm")
#: Where `make setup-promtool` puts it if the machine has none.
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=ROOT / "tests" / "monitoring" / "bin")
if not PROMTOOL and os.environ.get("CI") != "true":
    pytest.skip("install promtool, or run as root on Debian: make setup-promtool", allow_module_level=True)

#: Of the release that is rendered.
NAMESPACE = "push"


def test_promtool_is_installed():
    assert PROMTOOL


def groups(*options):
    [rule] = [each for each in objects(VALUES["keda"], *options) if each["kind"] == "PrometheusRule"]
    return rule["spec"]["groups"]


def missing(*options):
    """The components whose absence raises an alert."""
    rules = [rule for group in groups(*options) for rule in group["rules"]]
    assert len(rules) > 30
    return {rule["labels"]["component"] for rule in rules if "component" in rule["labels"]}


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
def test_a_missing_process_is_seen_beside_another_release(series, expected, tmp_path):
    (tmp_path / "rules.json").write_text(json.dumps({"groups": groups()}))
    firing = 'ALERTS{alertname="WakupushProcessMissing", alertstate="firing"}'
    expression = {"expr": f"count by (namespace, component) ({firing})", "eval_time": "25m", "exp_samples": expected}
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [expression]}
    content = {"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.json").write_text(json.dumps(content))
    result = subprocess.run(
        [PROMTOOL, "test", "rules", tmp_path / "test.json"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
