"""`make monitoring`: write the files of Grafana and Prometheus that the chart and compose mount."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.monitoring.dashboards import DASHBOARDS, expression
from deploy.monitoring.rules import ALERTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.monitoring.dashboards import Dashboard, Panel
    from deploy.monitoring.rules import Alert

FILES = Path(__file__).parents[1] / "helm" / "wakupush" / "files"
#: The chart puts the address at which people read it in its place.
RUNBOOK = "docs/operating/respond.md"
#: Panels beside each other, and Grafana's units of width and height.
ACROSS, WIDTH, HEIGHT = 3, 24, 8

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def files() -> dict[Path, str]:
    """Return the content of every generated file."""
    found = {FILES / "dashboards" / f"{each.name}.json": json.dumps(_dashboard(each), indent=1) for each in DASHBOARDS}
    found[FILES / "rules" / "wakupush.yaml"] = "\n".join(_rules())
    return {path: text + "\n" for path, text in found.items()}


def _rules() -> Iterator[str]:
    yield "# Made by `make monitoring` out of deploy/monitoring/rules.py."
    yield "groups:"
    yield "  - name: wakupush"
    yield "    rules:"
    for alert in ALERTS:
        yield f"      - alert: {alert.name}"
        yield f"        expr: {_text(alert.expr)}"
        yield f"        for: {alert.wait}"
        yield f"        labels: {{ severity: {alert.severity} }}"
        yield "        annotations:"
        yield f"          summary: {_text(alert.summary)}"
        yield f"          runbook_url: {runbook_url(alert)}"


def runbook_url(alert: Alert) -> str:
    """Return the address of an alert's section."""
    return f"{RUNBOOK}#{alert.name.lower()}"


def _text(text: str) -> str:
    """Return a text as YAML has it: JSON's form is one of YAML's."""
    return json.dumps(text, ensure_ascii=False)


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for heading, row in dashboard.rows:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": heading,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1},
            }
        )
        top += 1
        for position, panel in enumerate(row):
            line, column = divmod(position, ACROSS)
            width = WIDTH // ACROSS
            place = {"x": column * width, "y": top + line * HEIGHT, "w": width, "h": HEIGHT}
            panels.append(_panel(panel, len(panels) + 1, place))
        top += -(-len(row) // ACROSS) * HEIGHT
    return {
        "uid": dashboard.name,
        "title": dashboard.title,
        "tags": ["wakupush"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_datasource(), _namespace()]},
        "links": [{"type": "dashboards", "tags": ["wakupush"], "title": "wakupush", "keepTime": True}],
        "panels": panels,
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 8}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": expression(text),
                "legendFormat": legend,
            }
            for index, (text, legend) in enumerate(panel.queries)
        ],
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _namespace() -> dict[str, Any]:
    return {
        "name": "namespace",
        "label": "Namespace",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": "label_values(wakupush_exporter_up, namespace)",
        "refresh": 2,
        "includeAll": True,
        # Also what has no such label, as in compose.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
