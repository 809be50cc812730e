"""The Grafana dashboard over the tables that `wakupush pipeline report` writes into Postgres."""

from typing import Final

from deploy.monitoring.dashboards import Dashboard, Look, Panel, Source
from wakupush.model.objectives import ANSWER_SECONDS, BUDGET, DELIVERY_SECONDS

#: A day of the tables as a moment; Grafana knows no dates.
_DAY: Final = "day::timestamp AT TIME ZONE 'UTC'"
_HOUR: Final = "(day + make_interval(hours => hour)) AT TIME ZONE 'UTC'"
_AIM: Final = 1 - BUDGET


def _series(name: str, value: str, table: str, where: str = "true", time: str = _DAY) -> dict[str, str]:
    """Return the query of one line for each name; a value that is hidden is a gap.

    Args:
        name: an expression of the line's name.
        value: an expression over the rows of a line and a time.
        time: an expression of the time.
    """
    return _sql(
        f"""SELECT {time} AS time, {name} AS metric, {value} AS value FROM wakupush_reports.{table}
        WHERE $__timeFilter(day) AND {where} GROUP BY 1, 2 ORDER BY 1, 2"""  # noqa: S608 - written in this file
    )


def _sql(text: str) -> dict[str, str]:
    return {"": " ".join(text.split())}


def _good(title: str, what: str, description: str) -> Panel:
    """Return the latest day's share of good answers or deliveries."""
    query = _series(f"'{title}'", "max(good_permille) / 1000.0", "objectives_daily", f"what = '{what}'")
    return Panel(title, "percentunit", query, description, Look.NUMBER, least=_AIM)


def _stages(*stages: str) -> str:
    return f"stage IN ({', '.join(repr(stage) for stage in stages)})"


REPORTS: Final = Dashboard(
    "wakupush-reports",
    "wakupush: reports",
    source=Source.POSTGRES,
    rows={
        "Objectives, the latest day": (
            _good(
                f"Answers within {ANSWER_SECONDS} s",
                "answer",
                "Share of the answers that were committed in time since ingest saw the message.",
            ),
            _good(
                f"Deliveries within {DELIVERY_SECONDS} s",
                "delivery",
                "Share of the notifications that gorush took in time since ingest saw the message.",
            ),
            Panel(
                "Notifications",
                "short",
                _series("'admitted'", "sum(events)", "funnel_daily", _stages("admitted")),
                "Notifications that were admitted on the day.",
                Look.NUMBER,
            ),
            Panel(
                "Lost",
                "short",
                _series("'lost'", "sum(events)", "funnel_daily", _stages("dead_letter", "expired")),
                "Dead letters, and notifications that expired. Nothing is shown if they concern too few people.",
                Look.NUMBER,
            ),
            Panel(
                "Devices notified",
                "short",
                _series("'notified'", "sum(devices)", "tokens_daily", "kind = 'notified'"),
                "Devices that got a notification on the day.",
                Look.NUMBER,
            ),
        ),
        "Day by day": (
            Panel(
                "Objectives",
                "percentunit",
                _series("what", "max(good_permille) / 1000.0", "objectives_daily"),
                "Share of the answers and deliveries of a day that were in time.",
            ),
            Panel(
                "Messages",
                "short",
                _series("stage", "sum(events)", "funnel_daily", _stages("received", "opened", "refused", "answered")),
                "Messages of a day; refused includes items of messages.",
            ),
            Panel(
                "Notifications",
                "short",
                _series(
                    "stage",
                    "sum(events)",
                    "funnel_daily",
                    _stages("admitted", "delivered_at_once", "delivered_by_retry", "unknown", "filtered"),
                ),
                "Notifications of a day, by what became of them.",
            ),
            Panel(
                "Time of deliveries",
                "ms",
                _series("platform || ' p99'", "max(p99_ms)", "latency_daily", "what = 'delivery'"),
                "The p99 of a day, since ingest saw the message.",
            ),
            Panel(
                "Age of messages on arrival",
                "ms",
                _series("'shard ' || shard", "max(p99_ms)", "arrivals_daily"),
                "The p99 of a day, since the time of the sender, by its own clock.",
            ),
            Panel(
                "Devices",
                "short",
                _series("kind", "sum(devices)", "tokens_daily"),
                "Devices that registered, unregistered, were notified, or whose token died, on a day.",
            ),
        ),
        "Where and why": (
            Panel(
                "Failed attempts by hour",
                "short",
                _series("platform", "sum(events)", "load_hourly", "kind = 'failed'", _HOUR),
                "Attempts that gorush or a platform failed: outages stand out.",
            ),
            Panel(
                "Refused by hour",
                "short",
                _series("failure", "sum(events)", "refusals_hourly", time=_HOUR),
                "Messages and notifications that were refused, by reason.",
            ),
            Panel(
                "Apps and types of push",
                "short",
                _series("concat_ws(' ', app, push_type)", "sum(events)", "pushes_daily", "kind = 'delivered'"),
                "Notifications that were delivered on a day.",
            ),
            Panel(
                "Failures",
                "short",
                _sql(
                    """SELECT failure, kind, sum(events) AS events,
                    sum(events) FILTER (WHERE attempt = 0) AS "before an attempt",
                    sum(events) FILTER (WHERE attempt = 1) AS "first attempt",
                    sum(events) FILTER (WHERE attempt > 1) AS retries
                    FROM wakupush_reports.failures_daily WHERE $__timeFilter(day) AND failure <> ''
                    GROUP BY 1, 2 ORDER BY 3 DESC NULLS LAST"""
                ),
                "Failures of all days by class, at least: rows about too few people do not count.",
                Look.TABLE,
            ),
            Panel(
                "Attempts",
                "short",
                _sql(
                    """SELECT attempt, platform, sum(events) FILTER (WHERE kind = 'attempt') AS tried,
                    sum(events) FILTER (WHERE kind = 'delivered') AS delivered
                    FROM wakupush_reports.retries_daily WHERE $__timeFilter(day) GROUP BY 1, 2 ORDER BY 1, 2"""
                ),
                "What retries won on all days, at least: rows about too few people do not count.",
                Look.TABLE,
            ),
            Panel(
                "Devices that stay",
                "short",
                _sql(
                    """SELECT period, platform, week AS "last active week", devices
                    FROM wakupush_reports.devices_by_last_week WHERE $__timeFilter(period) ORDER BY 1, 2, 3"""
                ),
                "Devices that registered in the first week of a period, by the last week they were active in.",
                Look.TABLE,
            ),
        ),
    },
)
