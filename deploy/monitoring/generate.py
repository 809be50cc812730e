"""`make monitoring`: write the files of Grafana and Prometheus that the chart and compose mount."""

import json
import math
from pathlib import Path
from typing import Any

import yaml

from deploy.monitoring.dashboards import DASHBOARDS, Dashboard, Panel, expression
from deploy.monitoring.rules import ALERTS, OBJECTIVES, Alert

FILES = Path(__file__).parents[1] / "helm" / "wakupush" / "files"
#: The chart replaces this path by the address at which people read the page.
RUNBOOK = "docs/operating/respond.md"
#: Panels beside each other, and Grafana's units of width and height.
ACROSS, WIDTH, HEIGHT = 3, 24, 8

_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def files() -> dict[Path, str]:
    """Return the content of every generated file."""
    contents = {
        FILES / "dashboards" / f"{dashboard.name}.json": json.dumps(_dashboard(dashboard), indent=1) + "\n"
        for dashboard in DASHBOARDS
    }
    contents[FILES / "rules" / "wakupush.yaml"] = _rules()
    return contents


def _rules() -> str:
    rules = [
        {
            "alert": alert.name,
            "expr": alert.expr,
            "for": alert.wait,
            "labels": {"severity": alert.severity} | ({"component": alert.component} if alert.component else {}),
            "annotations": {
                "summary": alert.summary,
                "command": alert.command,
                "runbook_url": runbook_url(alert),
            },
        }
        for alert in ALERTS
    ]
    records = [{"record": name, "expr": expr} for objective in OBJECTIVES for name, expr in objective.records()]
    groups = {"groups": [{"name": "wakupush-levels", "rules": records}, {"name": "wakupush", "rules": rules}]}
    text = yaml.safe_dump(groups, sort_keys=False, allow_unicode=True, width=math.inf)
    return "# Made by `make monitoring` out of deploy/monitoring/rules.py.\n" + text


def runbook_url(alert: Alert) -> str:
    """Return the address of an alert's section."""
    return f"{RUNBOOK}#{alert.name.lower()}"


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
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                _namespace(),
            ]
        },
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


def _namespace() -> dict[str, Any]:
    return {
        "name": "namespace",
        "label": "Namespace",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": "label_values(wakupush_exporter_up, namespace)",
        "refresh": 2,
        "includeAll": True,
        # Includes series without this label, as in compose.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
