"""The report as one page, without scripts, fonts or pictures from elsewhere, so that it can be mailed and kept.

It goes from the verdict to the details: were the objectives met, what changed, then each table.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from html import escape
from operator import itemgetter
from typing import Any, Final

from wakupush.model.objectives import BUDGET
from wakupush.pipeline.lake.lake import days_between
from wakupush.pipeline.report import findings
from wakupush.pipeline.report.findings import Objective, Outage, percent
from wakupush.pipeline.report.plots import (
    NOTHING,
    Band,
    bars,
    brief,
    duration,
    durations,
    heat_map,
    lines,
    number,
    table,
)
from wakupush.pipeline.report.tables import HIDDEN, LATER_ATTEMPTS, NO_SHARD, Row, Total

#: The stages of a message and of a notification, in order, with their names on the page.
_MESSAGES: Final = {
    "received": "received",
    "foreign": "not for us",
    "opened": "opened",
    "refused": "refused, or items of it",
    "request_expired": "expired unread",
    "answered": "answered",
}
_NOTIFICATIONS: Final = {
    "admitted": "admitted",
    "delivered_at_once": "delivered at once",
    "delivered_by_retry": "won by a retry",
    "unknown": "outcome unknown",
    "dead_letter": "dead letters",
    "expired": "expired",
    "filtered": "kept back as wished",
}
_WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_HOURS: Final = tuple(f"{hour:02}" for hour in range(24))
_MOST_ROWS: Final = 15
_PERCENT: Final = 100

_FOOTER: Final = (
    "Rows about fewer than {k} people have no values, and neither have the smallest rows beside them. Sums leave them"
    " out and then say \N{LEFT DOUBLE QUOTATION MARK}at least\N{RIGHT DOUBLE QUOTATION MARK}; a dash is what is too few"
    " to tell."
)
#: What an internal report says at its head and foot.
INTERNAL: Final = (
    "Internal: this report has every row, also those about a single person. Keep it where the events themselves may"
    " lie."
)

_STYLE: Final = """
:root{--ink:#1d2733;--soft:#566477;--line:#dfe5ec;--card:#fff;--page:#f4f6fa;--good:#1b7f5c;--bad:#b3243f;
--band:#f6c9cf;--c1:#2b5fd0;--c2:#b85c14;--c3:#147a58;--c4:#8a3bb5;--c5:#7d6a00;--c6:#b3243f}
@media(prefers-color-scheme:dark){:root{--ink:#e6ebf2;--soft:#a3b0c2;--line:#2c3644;--card:#1a212b;--page:#11161d;
--good:#5fd6ab;--bad:#ff8fa7;--band:#5a2833;
--c1:#7ba2ff;--c2:#ffae70;--c3:#5fd6ab;--c4:#d196f2;--c5:#e6d25c;--c6:#ff8fa7}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:960px;margin:0 auto;padding:32px 20px 60px}
h1{font-size:26px;margin:0}h2{font-size:17px;margin:0 0 2px}h3{font-size:14px;margin:16px 0 4px}
p{margin:4px 0 12px;color:var(--soft)}
.verdict{font-size:17px;color:var(--ink);border-left:5px solid var(--good);padding:2px 0 2px 14px;margin:14px 0 4px}
.verdict.missed{border-color:var(--bad)}.internal{color:var(--bad);font-weight:600}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:20px 22px;margin-top:18px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(136px,1fr));gap:14px;margin-top:20px}
.fact{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:14px 14px}
.fact b{display:block;font-size:22px;font-variant-numeric:tabular-nums}.fact span{color:var(--soft);font-size:13px}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(340px,1fr));gap:0 26px}
svg{width:100%;height:auto;display:block}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}svg .label,svg .value,svg .name{fill:var(--ink);font-size:13px}
svg .in{font-size:10px;fill:var(--ink)}
.bar,.cell{fill:var(--c1)}.grid{stroke:var(--line)}.band{fill:var(--band)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.line.c1{stroke:var(--c1)}.line.c2{stroke:var(--c2);stroke-dasharray:7 4}.line.c3{stroke:var(--c3);stroke-dasharray:2 3}
.line.c4{stroke:var(--c4);stroke-dasharray:10 3 2 3}.line.c5{stroke:var(--c5);stroke-dasharray:5 2}
.line.c6{stroke:var(--c6);stroke-dasharray:1 5}
.dot.c1{fill:var(--c1)}.dot.c2{fill:var(--c2)}.dot.c3{fill:var(--c3)}
.dot.c4{fill:var(--c4)}.dot.c5{fill:var(--c5)}.dot.c6{fill:var(--c6)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px 5px 0;text-align:right;border-bottom:1px solid var(--line)}
td{white-space:nowrap}
thead th{color:var(--soft);font-weight:500}tbody th{font-weight:400}
td:first-child,th:first-child{text-align:left}
summary{cursor:pointer;color:var(--soft);font-size:13px;margin-top:6px}
summary:focus-visible{outline:2px solid var(--c1)}
details table{font-size:12px}
footer{color:var(--soft);font-size:13px;margin-top:24px}
@media(max-width:600px){main{padding:20px 10px 40px}section{padding:14px 12px;overflow-x:auto}
svg.whole{min-width:620px}
.two{grid-template-columns:1fr}}
@media print{:root{--page:#fff}main{max-width:none;padding:0}section,.fact{break-inside:avoid;border-radius:0}
details{display:none}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReport:
    """A report: its tables and its page."""

    first: date
    last: date
    #: By table, in the order of their keys.
    rows: Mapping[str, list[Row]]
    #: Where the page is: a file, or an object in a store.
    page: str
    #: The least number of people that a row with values is about; 1 in an internal report, which has all rows.
    smallest_cell: int

    @property
    def is_internal(self) -> bool:
        """Whether it has rows about single people."""
        return self.smallest_cell == 1

    @property
    def events(self) -> Total:
        """Return how many events the funnel shows: the number of all would reveal those that it hides."""
        return Total.of(self.rows["funnel_daily"], "events")


def render(report: WrittenReport) -> str:
    """Return the page of a report, HTML."""
    days = days_between(report.first, report.last)
    outages = findings.outages(report.rows)
    objectives = findings.objectives(report.rows)
    parts = [
        f"<h1>Push notifications, {report.first} to {report.last}</h1>",
        f'<p class="internal">{INTERNAL}</p>' if report.is_internal else "",
        _verdict(objectives, outages),
        f"<p>Delivery events: {report.events}. Days and hours are UTC.</p>",
        _facts(report, days),
        _section("Changes", "The last seven days and the seven before.", _changes(report)),
        _section("Objectives", f"The budget is the {_PERCENT * BUDGET:g} % that may be bad.", _objectives(objectives)),
        _section("Outages", "Hours in which a fifth of a platform's attempts failed.", _outages(outages)),
        _section("From message to delivery", "Events of each stage, all days.", _funnels(report)),
        _section("Day by day", "Notifications, a day; outages are marked.", _daily(report, days, outages)),
        _section(
            "How long a delivery takes",
            "From ingest seeing the message to gorush taking the notification; outages are marked.",
            _deliveries(report, days, outages),
        ),
        _section(
            "How long messages wait in a queue",
            "p99 by queue.",
            lines("p99 of the wait", _days(days), _latencies(report, days, "queue_wait", "p99_ms", "queue"), durations),
        ),
        _section("How old messages are when they arrive", "From the sender to ingest, by shard.", _arrivals(report)),
        _section("Apps and types of push", "Notifications, all days.", _pushes(report)),
        _section("What retries won", "Deliveries that went through on each attempt.", _retries(report)),
        _section("What fails", "Failures by class and attempt, all days and platforms.", _failures(report)),
        _section("What is refused", "Messages and notifications a day, by reason and hour.", _refusals(report, days)),
        _section("Load by hour of the week", "Messages a day in each hour, all queues.", _week(report, days)),
        _section(
            "Devices", "Devices that registered, left, were notified, or whose token died.", _tokens(report, days)
        ),
        _section(
            "How long devices stay",
            "Of the devices that registered in the first week of a period of pseudonyms: those still active in a week.",
            _survival(report),
        ),
        _section("Registrations that nobody writes to", "In each period of pseudonyms.", _usage(report)),
        _section(
            "Unusual load", "Pseudonyms that were sent or asked for far more than others in a day.", _unusual(report)
        ),
        f"<footer>{INTERNAL if report.is_internal else _FOOTER.format(k=report.smallest_cell)}</footer>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Push notifications, {report.first} to {report.last}</title><style>{_STYLE}</style></head>"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _section(title: str, text: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(text)}</p>{content or '<p>None.</p>'}</section>"


def _verdict(objectives: Iterable[Objective], outages: list[Outage]) -> str:
    """Return the one sentence that a hurried reader needs."""
    objectives = list(objectives)
    missed = [objective for objective in objectives if objective.is_missed]
    unknown = [objective for objective in objectives if objective.share is None or objective.is_at_most]
    if missed:
        shares = ", ".join(f"{objective.text} ({percent(objective.share or 0.0)})" for objective in missed)
        text = f"Missed: {shares}."
    elif unknown:
        names = ", ".join(objective.text for objective in unknown)
        text = f"No number that is shown misses an objective; too few events to tell of {names}."
    else:
        text = "All objectives were met."
    if outages:
        longest = max(outages, key=lambda outage: outage.end - outage.begin)
        count = "1 outage" if len(outages) == 1 else f"{len(outages)} outages"
        text += f" {count} of a platform, the longest {longest.platform} for {_length(longest)}."
    return f'<p class="verdict{" missed" if missed else ""}">{escape(text)}</p>'


def _length(outage: Outage) -> str:
    return duration(1000 * (outage.end - outage.begin).total_seconds())


def _facts(report: WrittenReport, days: list[date]) -> str:
    admissions = findings.stage(report.rows, "admitted")
    delivered = findings.share_delivered(report.rows)
    cost = findings.cost_per_thousand(report.rows)
    active = Total.of((row for row in report.rows["tokens_daily"] if row["kind"] == "notified"), "devices")
    facts = {
        "notifications admitted": str(admissions),
        "delivered": NOTHING if delivered is None else percent(delivered),
        "won by retries": str(findings.stage(report.rows, "delivered_by_retry")),
        "dead letters and expired": str(findings.stage(report.rows, "dead_letter", "expired")),
        "devices notified a day": str(active / len(days)),
        "CPU of workers per 1,000 deliveries, by planned costs": NOTHING if cost is None else f"{cost:.2f} s",
    }
    cards = (f'<div class="fact"><b>{value}</b><span>{escape(name)}</span></div>' for name, value in facts.items())
    return f'<div class="facts">{"".join(cards)}</div>'


def _changes(report: WrittenReport) -> str:
    body = [
        (
            change.name,
            change.text(change.before),
            change.text(change.after),
            change.difference or NOTHING,
        )
        for change in findings.changes(report.rows, report.first, report.last)
    ]
    return table(("", "before", "last week", "change"), body) if body else "<p>A report of two weeks has them.</p>"


def _objectives(objectives: Iterable[Objective]) -> str:
    body = [
        (
            objective.text,
            f"{_PERCENT * (1 - BUDGET):g} %",
            NOTHING if objective.share is None else at_most + percent(objective.share),
            NOTHING if objective.budget_used is None else f"{at_least}{_PERCENT * objective.budget_used:.0f} %",
            _outcome(objective),
        )
        for objective in objectives
        for at_most, at_least in [("at most ", "at least ") if objective.is_at_most else ("", "")]
    ]
    return table(("objective", "aim", "reached", "budget used", ""), body)


def _outcome(objective: Objective) -> str:
    if objective.share is None:
        return NOTHING
    if objective.is_missed:
        return "missed"
    return "too few to tell" if objective.is_at_most else "met"


def _outages(outages: list[Outage]) -> str:
    body = [
        (
            outage.platform,
            f"{outage.begin:%Y-%m-%d %H:%M}",
            f"{outage.end:%Y-%m-%d %H:%M}",
            f"up to {_length(outage)}",
            number(outage.failures),
        )
        for outage in outages
    ]
    return table(("platform", "began", "over by", "time to recover", "failed attempts"), body) if body else ""


def _funnels(report: WrittenReport) -> str:
    return (
        '<div class="two">'
        + "".join(
            f"<div><h3>{title}</h3>{bars(title, _funnel(report, stages))}</div>"
            for title, stages in (("Messages", _MESSAGES), ("Notifications", _NOTIFICATIONS))
        )
        + "</div>"
    )


def _funnel(report: WrittenReport, stages: Mapping[str, str]) -> dict[str, Total]:
    present = {row["stage"] for row in report.rows["funnel_daily"]}
    return {label: findings.stage(report.rows, name) for name, label in stages.items() if name in present}


def _grouped(rows: Iterable[Row], *names: str) -> dict[Any, list[Row]]:
    """Return rows by their value of a column, or their values of several."""
    key = itemgetter(*names)
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _by_day(days: list[date], rows: Iterable[Row], value: str) -> list[Total]:
    """Return the sum of a value for each day: 0 if there is no row."""
    rows_of = _grouped(rows, "day")
    return [Total.of(rows_of.get(day, []), value) for day in days]


def _days(days: list[date]) -> list[str]:
    return [f"{day:%d %b}" for day in days]


def _bands(outages: Iterable[Outage], days: list[date]) -> list[Band]:
    """Return the outages as places on an axis whose points are days; a point is the middle of its day."""
    begin = datetime.combine(days[0], time(12), UTC)
    most = len(days) - 1

    def place(moment: datetime) -> float:
        return min(max(0.0, (moment - begin) / timedelta(days=1)), most)

    return [
        Band(place(each.begin), place(each.end), f"{each.platform}: {each.begin:%d %b %H:%M} to {each.end:%d %b %H:%M}")
        for each in outages
    ]


def _daily(report: WrittenReport, days: list[date], outages: list[Outage]) -> str:
    names = ("admitted", "delivered_at_once", "delivered_by_retry")
    series = {
        _NOTIFICATIONS[stage]: _by_day(
            days, (row for row in report.rows["funnel_daily"] if row["stage"] == stage), "events"
        )
        for stage in names
    }
    return lines("Notifications a day", _days(days), series, bands=_bands(outages, days))


def _latencies(report: WrittenReport, days: list[date], what: str, value: str, key: str) -> dict[str, list[Total]]:
    """Return a time for each day: hidden if there is no row, too."""
    latencies: dict[str, dict[date, Total]] = {}
    for row in report.rows["latency_daily"]:
        if row["what"] == what:
            latencies.setdefault(row[key], {})[row["day"]] = Total.of([row], value)
    return {name: [values.get(day, HIDDEN) for day in days] for name, values in sorted(latencies.items())}


def _deliveries(report: WrittenReport, days: list[date], outages: list[Outage]) -> str:
    """Return a plot for each platform, of its percentiles."""
    values = ("p50_ms", "p95_ms", "p99_ms")
    of_platforms: dict[str, dict[str, list[Total]]] = {}
    for value in values:
        for platform, points in _latencies(report, days, "delivery", value, "platform").items():
            of_platforms.setdefault(platform, {})[value.removesuffix("_ms")] = points
    return "".join(
        f"<h3>{escape(platform)}</h3>"
        + lines(
            f"Time of deliveries, {platform}",
            _days(days),
            series,
            durations,
            _bands((outage for outage in outages if outage.platform == platform), days),
        )
        for platform, series in of_platforms.items()
    )


def _arrivals(report: WrittenReport) -> str:
    """Return the messages of each shard, and the worst and the usual day of its percentiles."""
    body = []
    for shard, rows in sorted(_grouped(report.rows["arrivals_daily"], "shard").items()):
        visible = [row for row in rows if not row["suppressed"]]
        middle = [
            sorted(row[name] for row in visible)[len(visible) // 2] if visible else None
            for name in ("p50_ms", "p99_ms")
        ]
        worst = max((row["p99_ms"] for row in visible), default=None)
        times = (NOTHING if value is None else duration(value) for value in (*middle, worst))
        body.append(("other" if shard == NO_SHARD else str(shard), str(Total.of(rows, "events")), *times))
    head = ("shard", "messages", "p50 of the middle day", "p99 of the middle day", "p99 of the worst day")
    return table(head, body) if body else ""


def _pushes(report: WrittenReport) -> str:
    body = []
    for (app, push_type), rows in sorted(_grouped(report.rows["pushes_daily"], "app", "push_type").items()):
        admitted, delivered = (
            Total.of((row for row in rows if row["kind"] == kind), "events") for kind in ("admitted", "delivered")
        )
        names = (app or "all apps", push_type.replace("_", " ") or "unknown")
        body.append((*names, str(admitted), str(delivered), _share(delivered, admitted)))
    return table(("app", "type", "admitted", "delivered", "share"), body) if body else ""


def _share(part: Total, whole: Total) -> str:
    """Return a share as text; a dash if one of both is not known in full."""
    is_known = whole.shown and not whole.is_partial and not part.is_partial
    return percent(min(1.0, part.shown / whole.shown)) if is_known else NOTHING


def _retries(report: WrittenReport) -> str:
    rows = report.rows["retries_daily"]
    body = []
    for attempt in sorted({row["attempt"] for row in rows}):
        tried, won = (
            Total.of((row for row in rows if (row["attempt"], row["kind"]) == (attempt, kind)), "events")
            for kind in ("attempt", "delivered")
        )
        body.append((str(attempt), str(tried), str(won), _share(won, tried)))
    return table(("attempt", "tried", "delivered", "share"), body) if body else ""


def _failures(report: WrittenReport) -> str:
    attempts = (0, *range(1, LATER_ATTEMPTS + 1))
    kinds = {"failed", "refused", "unknown", "foreign"}
    rows_of = _grouped((row for row in report.rows["failures_daily"] if row["kind"] in kinds), "failure")
    ranking = sorted(rows_of.items(), key=lambda entry: -Total.of(entry[1], "events").shown)[:_MOST_ROWS]
    body = [
        (
            failure.replace("_", " "),
            *(_cell([row for row in rows if row["attempt"] == attempt]) for attempt in attempts),
            str(Total.of(rows, "events")),
        )
        for failure, rows in ranking
    ]
    head = ("failure", "before an attempt", "first attempt", "second", "later", "all")
    return table(head, body) if body else ""


def _cell(rows: list[Row]) -> str:
    return str(Total.of(rows, "events")) if rows else ""


def _refusals(report: WrittenReport, days: list[date]) -> str:
    cells = _grouped(report.rows["refusals_hourly"], "failure", "hour")
    totals = {place: Total.of(rows, "events") for place, rows in cells.items()}
    names = sorted(
        {failure for failure, _ in totals},
        key=lambda name: -sum(total.shown for (failure, _), total in totals.items() if failure == name),
    )[:_MOST_ROWS]
    means = {
        (names.index(failure), hour): total / len(days) for (failure, hour), total in totals.items() if failure in names
    }
    labels = [name.replace("_", " ") for name in names]
    return heat_map("Refused, a day, by reason and hour", labels, _HOURS, means) if names else ""


def _week(report: WrittenReport, days: list[date]) -> str:
    """Return the mean of each hour of the week; a day without messages counts, and one whose number is hidden."""
    dates = Counter(day.weekday() for day in days)
    totals: dict[tuple[int, int], Total] = {}
    for row in report.rows["load_minutes_daily"]:
        place = row["day"].weekday(), row["hour"]
        totals[place] = totals.get(place, Total(0)) + Total.of([row], "messages")
    means = {place: total / dates[place[0]] for place, total in totals.items()}
    return heat_map("Messages a day, by weekday and hour", _WEEKDAYS, _HOURS, means)


def _tokens(report: WrittenReport, days: list[date]) -> str:
    names = {
        "registered": "registered",
        "notified": "notified",
        "unregistered": "unregistered",
        "token_died": "token died",
    }
    series = {
        label: _by_day(days, (row for row in report.rows["tokens_daily"] if row["kind"] == kind), "devices")
        for kind, label in names.items()
    }
    return lines("Devices a day", _days(days), series)


def _survival(report: WrittenReport) -> str:
    """Return the share of devices that were active in each week or later; dashes where a row is hidden."""
    of_periods = _grouped(report.rows["devices_by_last_week"], "period", "platform")
    last = max((row["week"] for rows in of_periods.values() for row in rows), default=0)
    body = []
    for (period, platform), rows in of_periods.items():
        total = Total.of(rows, "devices")
        later = (Total.of((row for row in rows if row["week"] >= least), "devices") for least in range(1, last + 1))
        body.append((f"{period} {platform}", str(total), *(_share(of_week, total) for of_week in later)))
    head = ("period from", "devices", *(f"week {week + 1}" for week in range(1, last + 1)))
    return table(head, body) if body else ""


def _usage(report: WrittenReport) -> str:
    uses_of: dict[str, dict[str, Total]] = {}
    for row in report.rows["registrations_used"]:
        uses_of.setdefault(f"{row['period']} {row['platform']}", {})[row["use"]] = Total.of([row], "devices")
    body = [
        (name, *(brief(uses.get(use, Total(0)), number) for use in ("notified", "unused")))
        for name, uses in uses_of.items()
    ]
    return table(("period from", "notified", "unused"), body) if body else ""


def _unusual(report: WrittenReport) -> str:
    rows = sorted(report.rows["unusual_daily"], key=lambda row: -row["events"])[:_MOST_ROWS]
    names = {"admitted": "notifications", "queried": "queries"}
    body = [
        (
            f"{row['day']} {row['pseudonym'][:12]}\N{HORIZONTAL ELLIPSIS}",
            names[row["kind"]],
            number(row["events"]),
            number(row["mean"]),
        )
        for row in rows
    ]
    return table(("day and pseudonym", "what", "events", "mean of the day"), body) if body else ""
