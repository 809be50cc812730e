"""The queries of the ScaledObjects, answered by promtool on made-up series."""

import json
import os
import shutil
import subprocess

import pytest

from support.deploy.chart import ROOT, VALUES, need, objects

need("helm")
#: Where `make setup-promtool` puts it if the machine has none.
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=ROOT / "tests" / "monitoring" / "bin")
if not PROMTOOL and os.environ.get("CI") != "true":
    pytest.skip("install promtool, or run as root on Debian: make setup-promtool", allow_module_level=True)


def test_promtool_is_installed():
    assert PROMTOOL


def query(pool):
    [found] = [
        trigger["metadata"]["query"]
        for each in objects(VALUES["keda"])
        if each["kind"] == "ScaledObject" and each["metadata"]["name"] == f"wakupush-{pool}"
        for trigger in each["spec"]["triggers"]
        if trigger["type"] == "prometheus"
    ]
    return found


def series(name, value, **labels):
    """A series as Prometheus has it of a pod in the namespace of the release."""
    labels |= {"namespace": "push", "pod": f"wakupush-{name}"}
    text = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"wakupush_{name}{{{text}}}", "values": f"{value} {value}"}


def waiting(pool, queued, under_way):
    return [series("queue_messages", queued, queue=pool), series("in_flight_messages", under_way, queue=pool)]


def due(**platforms):
    """Due deliveries of each platform, and the state of its breaker."""
    for platform, (count, breaker) in platforms.items():
        yield series("deliveries_due", count, platform=platform)
        yield series("breaker_state", breaker, platform=platform)


OPEN, CLOSED = 2, 0
DISPATCH = waiting("dispatch", 10, 5)
CASES = {
    "waiting and under way": ("query", waiting("query", 10, 5), 15),
    "another pool's do not count": ("query", waiting("query", 1, 1) + DISPATCH, 2),
    "due deliveries of all platforms": ("dispatch", [*DISPATCH, *due(ios=(7, CLOSED), android=(100, CLOSED))], 122),
    "not those behind an open breaker": ("dispatch", [*DISPATCH, *due(ios=(7, CLOSED), android=(100, OPEN))], 22),
    "both breakers open": ("dispatch", [*DISPATCH, *due(ios=(7, OPEN), android=(100, OPEN))], 15),
    "no breaker was ever read": ("dispatch", [*DISPATCH, series("deliveries_due", 7, platform="ios")], 22),
    # No figure at all: KEDA falls back, instead of scaling down on half of the truth.
    "Redis does not answer the exporter": ("dispatch", [*due(ios=(7, CLOSED))], None),
    "Postgres does not answer the exporter": ("dispatch", DISPATCH, None),
    "Postgres does not matter to the others": ("query", waiting("query", 10, 5), 15),
    "no exporter": ("registration", [], None),
}


@pytest.mark.parametrize(("pool", "input_series", "expected"), CASES.values(), ids=CASES.keys())
def test_a_query_asks_for_what_waits_and_is_under_way(pool, input_series, expected, tmp_path):
    samples = [] if expected is None else [{"labels": "{}", "value": expected}]
    expression = {"expr": query(pool), "eval_time": "1m", "exp_samples": samples}
    test = {"interval": "1m", "input_series": input_series, "promql_expr_test": [expression]}
    (tmp_path / "test.json").write_text(json.dumps({"evaluation_interval": "1m", "tests": [test]}))
    result = subprocess.run(
        [PROMTOOL, "test", "rules", tmp_path / "test.json"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
