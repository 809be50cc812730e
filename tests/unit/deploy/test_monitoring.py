"""Dashboards and alerts name metrics, labels and values that exist, and every alert has its section in the runbook."""

import json
import re
from pathlib import Path

import pytest
import yaml

from deploy.monitoring.dashboards import DASHBOARDS, Look
from deploy.monitoring.generate import NAMESPACE, files
from deploy.monitoring.reports import REPORTS
from deploy.monitoring.rules import ALERTS, COMPONENTS, OBJECTIVES
from wakupush.model.events import EventKind
from wakupush.model.platforms import Platform
from wakupush.model.queues import POOLS
from wakupush.model.roles import Role
from wakupush.runtime import metrics

ROOT = Path(__file__).parents[3]
RUNBOOK = (ROOT / "docs" / "operating" / "respond.md").read_text()

#: Made-up series, by the name of the test that raises alerts on them.
TRIED = {
    each["name"]: each
    for each in yaml.safe_load((ROOT / "tests" / "monitoring" / "alerts_test.yaml").read_text())["tests"]
}

#: What Prometheus itself puts onto series, by where it found the process.
TARGET_LABELS = {"namespace", "pod", "job", "instance", "component"}
#: Words of PromQL that these expressions use.
WORDS = {
    *(
        "sum",
        "max",
        "min",
        "count",
        "by",
        "rate",
        "changes",
        "increase",
        "delta",
        "avg_over_time",
        "max_over_time",
        "histogram_quantile",
        "time",
        "absent",
    ),
    *("and", "on", "or", "unless", "vector"),
}
#: Values that labels can have, as far as they are closed.
VALUES = {
    "kind": {kind.value for kind in EventKind},
    "queue": set(POOLS),
    "platform": {platform.label for platform in Platform},
}


def every_metric():
    values = (value for value in vars(metrics).values() if not isinstance(value, tuple))
    return [each for each in values if isinstance(each, metrics.Counter | metrics.Gauge | metrics.Histogram)]


def panels(*dashboards):
    return [panel for dashboard in dashboards for row in dashboard.rows.values() for panel in row]


def series():
    """The labels of every series that Prometheus can have of us, by its name."""
    labels_by_series = {}
    for metric in every_metric():
        [family] = metric.describe()
        labels = set(metric._labelnames)
        suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}[family.type]
        for suffix in suffixes:
            labels_by_series[family.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return labels_by_series


#: Labels of what kube-state-metrics tells, beside Prometheus' own.
KUBERNETES = {"kube_cronjob_status_last_successful_time": {"cronjob"}, "kube_cronjob_created": {"cronjob"}}
SERIES = series() | KUBERNETES


#: Expressions of the recorded series, by their name.
RECORDS = {name: expr for objective in OBJECTIVES for name, expr in objective.records()}
RECORDED_LABELS = {
    name: set(objective.labels.split(", ")) for objective in OBJECTIVES for name, _ in objective.records()
}


def problems(text):
    """Say what is wrong with an expression: names, labels and values that do not exist, words that are not known."""
    recorded = re.findall(r"\bwakupush:[\w:]+", text)
    messages = [f"nothing records {name}" for name in recorded if name not in RECORDS]
    text = re.sub(r"\bwakupush:[\w:]+", "1", text)
    selected = {name: RECORDED_LABELS.get(name, set()) for name in recorded}
    for name, matchers in re.findall(r"\b((?:wakupush|kube)_\w+)(\{[^}]*\})?", text):
        if name not in SERIES:
            messages.append(f"there is no series {name}")
            continue
        selected[name] = SERIES[name]
        for label, value in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', matchers):
            if label not in SERIES[name] | TARGET_LABELS:
                messages.append(f"{name} has no label {label}")
            if unknown := set(value.split("|")) - VALUES.get(label, set(value.split("|"))) - {""}:
                messages.append(f"{label} is never {', '.join(sorted(unknown))}")
    everywhere = set.intersection(*selected.values()) if selected else set()
    for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", text):
        messages += [
            f"not every series of it has the label {label}"
            for label in labels.split(", ")
            if label not in everywhere | TARGET_LABELS
        ]
    rest = re.sub(r'"[^"]*"|\{[^}]*\}|\[\d+[mhd](?::\d+[mhd])?\]|\b(?:by|on) \([^)]*\)', "", text)
    words = set(re.findall(r"[a-z_]\w*", rest)) - WORDS - set(SERIES)
    return messages + [f"{word} is not known" for word in sorted(words) if not word.startswith("wakupush_")]


EXPRESSIONS = {f"{alert.name} {alert.severity} {alert.component}".rstrip(): alert.expr for alert in ALERTS} | {
    f"{dashboard.name}: {panel.title}: {legend}": text.replace("$n", NAMESPACE)
    for dashboard in DASHBOARDS
    for panel in panels(dashboard)
    for legend, text in panel.queries.items()
}


EXPRESSIONS |= RECORDS
#: What the documents tell operators to ask.
EXPRESSIONS |= {
    f"scale.md: {text}": text
    for text in re.findall(r"`([^`\n]*wakupush_[^`\n]*)`", (ROOT / "docs/operating/scale.md").read_text())
}


@pytest.mark.parametrize("text", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_names_exist(text):
    assert problems(text) == []


def test_names_in_the_chart_exist():
    chart = [path for path in (ROOT / "deploy").rglob("*") if path.suffix in {".yaml", ".tpl", ".json"}]
    named = {name for path in chart for name in re.findall(r"\bwakupush_\w+", path.read_text())}
    assert len(named) > 30
    # The others are the roles in Postgres, and the schema of the pipeline's tables there.
    assert named <= {*SERIES, *Role, "wakupush_reports"}


def test_every_metric_is_in_a_dashboard():
    expressions = " ".join(EXPRESSIONS.values())
    missing = [
        metric.describe()[0].name
        for metric in every_metric()
        if not re.search(rf"\b{metric.describe()[0].name}(_total|_bucket|_sum)?\b", expressions)
    ]
    assert missing == []


def test_every_panel_has_a_unit_and_a_sentence():
    all_panels = panels(*DASHBOARDS, REPORTS)
    assert [panel.title for panel in all_panels if not panel.unit or len(panel.description.split()) < 4] == []


def test_a_panel_in_seconds_counts_nothing_else():
    for panel in panels(*DASHBOARDS):
        if panel.unit == "s":
            counts = [text for text in panel.queries.values() if re.search(r"\bincrease|_rows\b", text)]
            assert panel.look is Look.HEATMAP or counts == [], panel.title


def test_panels_do_not_overlap():
    for path, text in files().items():
        if path.suffix == ".json":
            cells = [
                (x, y)
                for panel in json.loads(text)["panels"]
                for place in [panel["gridPos"]]
                for x in range(place["x"], place["x"] + place["w"])
                for y in range(place["y"], place["y"] + place["h"])
            ]
            assert len(cells) == len(set(cells)), path.name
            assert max(x for x, _ in cells) < 24


def test_every_legend_names_labels_that_are_left():
    for panel in panels(*DASHBOARDS):
        for legend, text in panel.queries.items():
            grouping_labels = {label for labels in re.findall(r"by \(([^)]*)\)", text) for label in labels.split(", ")}
            assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= grouping_labels, (panel.title, legend)


def test_every_summary_names_labels_that_are_left():
    for alert in ALERTS:
        expr = re.sub(r"\bwakupush:[\w:]+", lambda name: RECORDS[name[0]], alert.expr)
        grouping_labels = {label for labels in re.findall(r"by \(([^)]*)\)", expr) for label in labels.split(", ")}
        assert set(re.findall(r"\$labels\.(\w+)", alert.summary)) <= grouping_labels, alert.name


def test_generated_files_are_those_of_the_data():
    for path, text in files().items():
        assert path.read_text() == text, f"{path.relative_to(ROOT)} is old: make monitoring"
    generated = set(files())
    for folder in {path.parent for path in generated}:
        assert set(folder.iterdir()) <= generated


def test_every_alert_has_its_section_and_the_reverse():
    sections = re.findall(r"^### (Wakupush\w+)$", RUNBOOK, re.MULTILINE)
    missing = [alert.name for alert in ALERTS if alert.name not in sections]
    assert not missing, "docs/operating/respond.md needs a section '### NAME' for each alert"
    in_order = list(dict.fromkeys(alert.name for alert in ALERTS))
    assert sections == in_order, "sections of respond.md are in the order of the rules"


@pytest.mark.parametrize("name", ["all is well", "nothing is well"])
def test_every_alert_has_series_where_it_is_tried(name):
    """Without series an alert neither raises nor fails, and promtool says nothing."""
    input_series = {re.match(r"\w+", each["series"])[0] for each in TRIED[name]["input_series"]}
    for alert in ALERTS:
        expr = re.sub(r"\bwakupush:[\w:]+", lambda name: RECORDS[name[0]], alert.expr)
        used = set(re.findall(r"\b(?:wakupush|kube)_\w+", re.sub(r"\{[^}]*\}", "", expr)))
        assert used <= input_series, f"{alert.name}: add series to {name!r} in tests/monitoring/alerts_test.yaml"


def test_names_of_the_runbook_exist():
    for name in re.findall(r"`(wakupush_\w+)`", RUNBOOK):
        assert name in SERIES, name


def test_no_label_is_one_of_prometheus_own():
    for metric in every_metric():
        assert not set(metric._labelnames) & (TARGET_LABELS | {"le"}), metric


def test_no_gauge_of_a_pool_is_one_for_each_process():
    for metric in every_metric():
        if isinstance(metric, metrics.Gauge) and not metric._labelnames:
            assert metric._multiprocess_mode not in {"all", "liveall"}, metric.describe()[0].name


def test_every_component_can_be_missing():
    values = yaml.safe_load((ROOT / "deploy/helm/wakupush/values.yaml").read_text())
    # Whether a canary is wanted shows in what workers do: WakupushCanaryLost.
    assert {*COMPONENTS, "flower", "canary"} == values["components"].keys()
    compose = yaml.safe_load((ROOT / "docker/config/prometheus.yml").read_text())
    [job] = [each for each in compose["scrape_configs"] if each["job_name"] == "wakupush"]
    [discovery] = job["dns_sd_configs"]
    assert COMPONENTS.keys() == set(discovery["names"])
    assert {alert.component for alert in ALERTS} == {"", *COMPONENTS}
