"""`make monitoring`: write the files of Grafana and Prometheus that the chart and compose mount."""

import json
import math
from pathlib import Path
from typing import Any

import yaml

from deploy.monitoring.dashboards import DASHBOARDS, Dashboard, Look, Panel, Source
from deploy.monitoring.reports import REPORTS
from deploy.monitoring.rules import ALERTS, OBJECTIVES

FILES = Path(__file__).parents[1] / "helm" / "wakupush" / "files"
#: The chart replaces this path by the address at which people read the page.
RUNBOOK = "docs/operating/respond.md"
#: Width of a dashboard, and width and height of panels, in Grafana's units.
WIDTH = 24
SIZES = {Look.NUMBER: (3, 4)}
SIZE = (8, 8)
#: What Grafana needs to know of each look.
OPTIONS: dict[Look, dict[str, Any]] = {
    Look.LINES: {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
    Look.NUMBER: {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background", "graphMode": "area"},
    Look.HEATMAP: {"calculate": False, "color": {"mode": "scheme", "scheme": "Oranges"}, "yAxis": {"unit": "s"}},
    Look.TABLE: {"showHeader": True},
}

#: What Prometheus needs to know of a look.
FORMATS: dict[Look, dict[str, Any]] = {
    Look.HEATMAP: {"format": "heatmap"},
    Look.TABLE: {"format": "table", "instant": True},
}
#: What ``$n`` stands for in an expression: the namespaces that a reader has chosen.
NAMESPACE = 'namespace=~"$namespace"'
#: What dashboards call their data source, and how often and from when on they show what it has.
SOURCES = {Source.PROMETHEUS: ("Prometheus", "30s", "now-3h"), Source.POSTGRES: ("Reports", "", "now-28d")}


def files() -> dict[Path, str]:
    """Return the content of every generated file."""
    contents = {
        FILES / "dashboards" / f"{dashboard.name}.json": json.dumps(_dashboard(dashboard), indent=1) + "\n"
        for dashboard in (*DASHBOARDS, REPORTS)
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
                "runbook_url": f"{RUNBOOK}#{alert.name.lower()}",
            },
        }
        for alert in ALERTS
    ]
    records = [{"record": name, "expr": expr} for objective in OBJECTIVES for name, expr in objective.records()]
    groups = {"groups": [{"name": "wakupush-levels", "rules": records}, {"name": "wakupush", "rules": rules}]}
    text = yaml.safe_dump(groups, sort_keys=False, allow_unicode=True, width=math.inf)
    return "# Made by `make monitoring` out of deploy/monitoring/rules.py.\n" + text


def _dashboard(dashboard: Dashboard) -> dict[str, Any]:
    panels: list[dict[str, Any]] = []
    top = 0
    for heading, row in dashboard.rows.items():
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
        left = height = 0
        for panel in row:
            width, panel_height = SIZES.get(panel.look, SIZE)
            if left + width > WIDTH:
                left, top, height = 0, top + height, 0
            place = {"x": left, "y": top, "w": width, "h": panel_height}
            panels.append(_panel(panel, dashboard.source, len(panels) + 1, place))
            left, height = left + width, max(height, panel_height)
        top += height
    label, refresh, begin = SOURCES[dashboard.source]
    variables = [{"name": "datasource", "label": label, "type": "datasource", "query": dashboard.source.value}]
    if dashboard.source is Source.PROMETHEUS:
        variables.append(_namespace())
    return {
        "uid": dashboard.name,
        "title": dashboard.title,
        "tags": ["wakupush"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": refresh,
        "time": {"from": begin, "to": "now"},
        "templating": {"list": variables},
        "links": [{"type": "dashboards", "tags": ["wakupush"], "title": "wakupush", "keepTime": True}],
        "panels": panels,
    }


def _panel(panel: Panel, source: Source, number: int, place: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    more: dict[str, Any] = {}
    if panel.look is Look.LINES:
        defaults |= {"min": 0, "custom": {"fillOpacity": 8}}
    elif panel.look is Look.NUMBER:
        limit = panel.most if panel.least is None else panel.least
        below, above = ("green", "red") if panel.least is None else ("red", "green")
        steps = [{"color": below, "value": None}] + ([] if limit is None else [{"color": above, "value": limit}])
        defaults |= {"thresholds": {"mode": "absolute", "steps": steps}}
    elif panel.look is Look.TABLE:
        hidden = dict.fromkeys(("Time", "__name__", "alertstate"), True)
        more = {"transformations": [{"id": "organize", "options": {"excludeByName": hidden}}]}
    return {
        "id": number,
        "type": panel.look.value,
        "title": panel.title,
        "description": panel.description,
        "datasource": _datasource(source),
        "gridPos": place,
        "fieldConfig": {"defaults": defaults},
        "options": OPTIONS[panel.look],
        **more,
        "targets": [
            {"refId": chr(ord("A") + index), **_query(panel.look, source, text, legend)}
            for index, (legend, text) in enumerate(panel.queries.items())
        ],
    }


def _datasource(source: Source) -> dict[str, str]:
    return {"type": source.value, "uid": "${datasource}"}


def _query(look: Look, source: Source, text: str, legend: str) -> dict[str, Any]:
    if source is Source.POSTGRES:
        shape = "table" if look is Look.TABLE else "time_series"
        return {"rawSql": text, "rawQuery": True, "editorMode": "code", "format": shape}
    return {"expr": text.replace("$n", NAMESPACE), "legendFormat": legend, **FORMATS.get(look, {})}


def _namespace() -> dict[str, Any]:
    return {
        "name": "namespace",
        "label": "Namespace",
        "type": "query",
        "datasource": _datasource(Source.PROMETHEUS),
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
