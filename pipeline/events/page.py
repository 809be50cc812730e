"""The report as one page, without scripts, fonts or pictures from elsewhere, so that it can be mailed and kept."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from typing import Final

from wakupush.pipeline.events.lake import days_between
from wakupush.pipeline.events.plots import NOTHING, bars, durations, heat_map, lines, number
from wakupush.pipeline.events.tables import Row

#: The stages from message to delivery, in order, with their names on the page.
_STAGES: Final = {
    "received": "messages received",
    "foreign": "not for us",
    "opened": "opened",
    "refused": "refused",
    "admitted": "notifications admitted",
    "filtered": "kept back as wished",
    "delivered_at_once": "delivered at once",
    "delivered_by_retry": "won by a retry",
    "unknown": "outcome unknown",
    "dead_letter": "dead letters",
    "expired": "expired",
}
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_HOURS: Final = tuple(f"{hour:02}" for hour in range(24))
_MOST_ROWS: Final = 15

_FOOTER: Final = (
    "Rows about too few people have no values, and neither have the smallest rows beside them. Sums here leave"
    " them out; a dash is what is too few to tell."
)

_STYLE: Final = """
:root{--ink:#1d2733;--soft:#66758a;--line:#e3e8ef;--card:#fff;--page:#f4f6fa;
--c1:#3b6fe0;--c2:#e0803b;--c3:#2aa67d;--c4:#a95bd0;--c5:#c9b02a;--c6:#d24d6b}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf2;--soft:#93a1b5;--line:#2c3644;--card:#1a212b;--page:#11161d;
--c1:#7ba2ff;--c2:#ffae70;--c3:#5fd6ab;--c4:#d196f2;--c5:#e6d25c;--c6:#ff8fa7}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:960px;margin:0 auto;padding:32px 20px 60px}
h1{font-size:26px;margin:0}h2{font-size:17px;margin:0 0 2px}
p{margin:4px 0 12px;color:var(--soft)}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px 22px;margin-top:18px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:14px;margin-top:20px}
.fact{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px 18px}
.fact b{display:block;font-size:24px;font-variant-numeric:tabular-nums}.fact span{color:var(--soft);font-size:13px}
svg{width:100%;height:auto;display:block}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}svg .label,svg .value{fill:var(--ink);font-size:13px}
.bar,.cell{fill:var(--c1)}.grid{stroke:var(--line)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.line.c1{stroke:var(--c1)}.line.c2{stroke:var(--c2)}.line.c3{stroke:var(--c3)}
.line.c4{stroke:var(--c4)}.line.c5{stroke:var(--c5)}.line.c6{stroke:var(--c6)}
.dot.c1,i.c1{fill:var(--c1);background:var(--c1)}.dot.c2,i.c2{fill:var(--c2);background:var(--c2)}
.dot.c3,i.c3{fill:var(--c3);background:var(--c3)}.dot.c4,i.c4{fill:var(--c4);background:var(--c4)}
.dot.c5,i.c5{fill:var(--c5);background:var(--c5)}.dot.c6,i.c6{fill:var(--c6);background:var(--c6)}
.legend{margin:6px 0 0}.legend span{margin-right:18px}
.legend i{display:inline-block;width:10px;height:10px;border-radius:50%;margin-right:6px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px 5px 0;text-align:right;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:500}td:first-child,th:first-child{text-align:left}
.warn{border-color:var(--c6)}footer{color:var(--soft);font-size:13px;margin-top:24px}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReport:
    """A report: its tables and its page."""

    first: date
    last: date
    #: By table, in the order of their keys.
    rows: Mapping[str, list[Row]]
    #: The page.
    page: Path

    @property
    def events(self) -> int | None:
        """Return how many events the funnel shows: the number of all would reveal those that it hides."""
        return _sum(self.rows["funnel_daily"], "events")


def render(report: WrittenReport) -> str:
    """Return the page of a report, HTML."""
    days = days_between(report.first, report.last)
    parts = [
        f"<h1>Push notifications, {report.first} to {report.last}</h1>",
        f"<p>{number(report.events)} delivery events. Days and hours are UTC.</p>",
        _facts(report),
        _section("From message to delivery", "Events of each stage, all days.", bars(_funnel(report))),
        _section("Day by day", "Notifications admitted and delivered, a day.", _daily(report, days)),
        _section(
            "How long a delivery takes", "From ingest seeing the message to gorush taking it.", _delivery(report, days)
        ),
        _section(
            "How long messages wait in a queue",
            "p99 by queue.",
            lines(_days(days), _latencies(report, days, "queue_wait", "p99_ms", "queue"), durations),
        ),
        _section("What retries won", "Deliveries that went through on each attempt.", _retries(report)),
        _section("What fails", "Failures by class, all days and platforms.", _failures(report)),
        _section("Load by hour of the week", "Messages a day in each hour, all queues.", _week(report)),
        _section("Device tokens", "Devices that registered, left, or whose token died.", _tokens(report, days)),
        _section("Registrations that nobody writes to", "In each period of pseudonyms.", _usage(report)),
        _section(
            "Unusual load", "Pseudonyms that were sent or asked for far more than others in a day.", _unusual(report)
        ),
        f"<footer>{_FOOTER}</footer>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Push notifications, {report.first} to {report.last}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _section(title: str, text: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{content}</section>"


def _sum(rows: Iterable[Row], name: str) -> int | None:
    numbers = [row[name] for row in rows if row[name] is not None]
    return sum(numbers) if numbers else None


def _funnel(report: WrittenReport) -> dict[str, int | None]:
    rows = report.rows["funnel_daily"]
    stages = {row["stage"] for row in rows}
    return {
        label: _sum((row for row in rows if row["stage"] == stage), "events")
        for stage, label in _STAGES.items()
        if stage in stages
    }


def _facts(report: WrittenReport) -> str:
    funnel = _funnel(report)
    admissions = funnel.get(_STAGES["admitted"])
    retry_deliveries = funnel.get(_STAGES["delivered_by_retry"])
    deliveries = (funnel.get(_STAGES["delivered_at_once"]) or 0) + (retry_deliveries or 0)
    share = f"{100 * deliveries / admissions:.2f} %" if admissions else NOTHING
    facts = {
        "notifications admitted": number(admissions),
        "delivered": share,
        "won by retries": number(retry_deliveries),
        "dead letters": number(funnel.get(_STAGES["dead_letter"])),
    }
    return (
        '<div class="facts">'
        + "".join(f'<div class="fact"><b>{value}</b><span>{escape(name)}</span></div>' for name, value in facts.items())
        + "</div>"
    )


def _by_day(days: list[date], rows: Iterable[Row], value: str, matches: Callable[[Row], bool]) -> list[float | None]:
    """Return a value for each day: 0 if there is no row, None if the value is hidden."""
    rows_of: dict[date, list[Row]] = {}
    for row in rows:
        if matches(row):
            rows_of.setdefault(row["day"], []).append(row)
    return [_sum(rows_of[day], value) if day in rows_of else 0 for day in days]


def _days(days: list[date]) -> list[str]:
    return [f"{day:%d %b}" for day in days]


def _daily(report: WrittenReport, days: list[date]) -> str:
    rows = report.rows["funnel_daily"]
    stages = ("admitted", "delivered_at_once", "delivered_by_retry")
    series = {
        _STAGES[stage]: _by_day(days, rows, "events", lambda row, stage=stage: row["stage"] == stage)  # type: ignore[misc]
        for stage in stages
    }
    return lines(_days(days), series)


def _latencies(
    report: WrittenReport, days: list[date], what: str, value: str, key: str
) -> dict[str, list[float | None]]:
    rows = [row for row in report.rows["latency_daily"] if row["what"] == what]
    latencies: dict[str, dict[date, float | None]] = {}
    for row in rows:
        latencies.setdefault(row[key], {})[row["day"]] = row[value]
    return {name: [values.get(day) for day in days] for name, values in sorted(latencies.items())}


def _delivery(report: WrittenReport, days: list[date]) -> str:
    series = {
        f"{platform} {value.removesuffix('_ms')}": points
        for value in ("p50_ms", "p95_ms", "p99_ms")
        for platform, points in _latencies(report, days, "delivery", value, "platform").items()
    }
    return lines(_days(days), dict(sorted(series.items())), durations)


def _retries(report: WrittenReport) -> str:
    rows = report.rows["retries_daily"]
    attempts = sorted({row["attempt"] for row in rows})
    body = []
    for attempt in attempts:
        attempt_count, went = (
            _sum((row for row in rows if (row["attempt"], row["kind"]) == (attempt, kind)), "events")
            for kind in ("attempt", "delivered")
        )
        share = f"{100 * went / attempt_count:.1f} %" if attempt_count and went is not None else NOTHING
        body.append((str(attempt), number(attempt_count), number(went), share))
    return _table(("attempt", "tried", "delivered", "share"), body)


def _failures(report: WrittenReport) -> str:
    counts: dict[str, int | None] = {}
    for row in report.rows["failures_daily"]:
        if row["kind"] in {"failed", "refused", "unknown", "foreign"}:
            counts.setdefault(row["failure"], None)
            if row["events"] is not None:
                counts[row["failure"]] = (counts[row["failure"]] or 0) + row["events"]
    ranking = sorted(counts.items(), key=lambda entry: -(entry[1] or 0))[:_MOST_ROWS]
    return bars(dict(ranking)) if ranking else "<p>Nothing.</p>"


def _week(report: WrittenReport) -> str:
    rows = (row for row in report.rows["load_hourly"] if row["kind"] == "received")
    cells: dict[tuple[int, int], float | None] = dict.fromkeys((row["day"].weekday(), row["hour"]) for row in rows)
    messages: dict[tuple[int, int], dict[date, int]] = {}
    for row in report.rows["load_minutes_daily"]:
        of_days = messages.setdefault((row["day"].weekday(), row["hour"]), {})
        of_days[row["day"]] = of_days.get(row["day"], 0) + row["messages"]
    cells |= {place: sum(of_days.values()) / len(of_days) for place, of_days in messages.items()}
    return heat_map(_WEEKDAYS, _HOURS, cells)


def _tokens(report: WrittenReport, days: list[date]) -> str:
    rows = report.rows["tokens_daily"]
    names = {"registered": "registered", "unregistered": "unregistered", "token_died": "token died"}
    series = {
        label: _by_day(days, rows, "devices", lambda row, kind=kind: row["kind"] == kind)  # type: ignore[misc]
        for kind, label in names.items()
    }
    return lines(_days(days), series)


def _usage(report: WrittenReport) -> str:
    shares: dict[str, dict[str, int | None]] = {}
    for row in report.rows["registrations_used"]:
        shares.setdefault(f"{row['period']} {row['platform']}", {})[row["use"]] = row["devices"]
    body = [(name, number(uses.get("notified", 0)), number(uses.get("unused", 0))) for name, uses in shares.items()]
    return _table(("from", "notified", "unused"), body)


def _unusual(report: WrittenReport) -> str:
    rows = sorted(report.rows["unusual_daily"], key=lambda row: -row["events"])[:_MOST_ROWS]
    if not rows:
        return "<p>None.</p>"
    names = {"admitted": "notifications", "queried": "queries"}
    body = [
        (f"{row['day']} {row['pseudonym'][:12]}…", names[row["kind"]], number(row["events"]), number(row["mean"]))
        for row in rows
    ]
    return _table(("day and pseudonym", "what", "events", "mean of the day"), body)


def _table(head: tuple[str, ...], body: Iterable[tuple[str, ...]]) -> str:
    def line(tag: str, cells: tuple[str, ...]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line('th', head)}{''.join(line('td', row) for row in body)}</table>"
