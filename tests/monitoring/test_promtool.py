"""promtool, of Prometheus, reads alerts and expressions of dashboards, and raises the alerts as it should."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.monitoring.dashboards import DASHBOARDS
from deploy.monitoring.generate import FILES, NAMESPACE

HERE = Path(__file__).parent
#: Where `make setup-promtool` puts it if the machine has none.
PROMTOOL = shutil.which("promtool") or shutil.which("promtool", path=HERE / "bin")
MISSING = (
    None if PROMTOOL else "install promtool, which comes with Prometheus, or run as root on Debian: make setup-promtool"
)
if MISSING and os.environ.get("CI") != "true":
    pytest.skip(MISSING, allow_module_level=True)


def test_promtool_is_installed():
    assert not MISSING, MISSING  # on CI nothing is skipped in silence


def promtool(*arguments):
    if MISSING:
        pytest.skip(MISSING)
    done = subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_alerts_are_well_formed():
    code, text = promtool("check", "rules", FILES / "rules" / "wakupush.yaml")
    assert code == 0, text


def test_alerts_are_raised_when_they_should_be():
    code, text = promtool("test", "rules", HERE / "alerts_test.yaml")
    assert code == 0, text


def rules_of(expressions):
    rules = [{"record": f"expression:{number}", "expr": text} for number, text in enumerate(expressions)]
    return json.dumps({"groups": [{"name": "dashboards", "rules": rules}]})


def test_expressions_of_dashboards_are_promql(tmp_path):
    expressions = [
        text.replace("$n", NAMESPACE)
        for dashboard in DASHBOARDS
        for row in dashboard.rows.values()
        for panel in row
        for text in panel.queries.values()
    ]
    file = tmp_path / "rules.json"
    file.write_text(rules_of(expressions))
    code, text = promtool("check", "rules", file)
    assert code == 0, text
    assert f"{len(expressions)} rules found" in text
    file.write_text(rules_of([*expressions, "sum(rate(wakupush_events_total))"]))
    assert promtool("check", "rules", file)[0] != 0
