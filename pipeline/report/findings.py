"""What an operator asks of a report: were the objectives met, what changed, when was a platform out, what does it cost.

Everything is reckoned from the tables as they are shown, so it tells nothing that they hide.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from wakupush.model.objectives import ANSWER_SECONDS, BUDGET, DELIVERY_SECONDS
from wakupush.pipeline.capacity import COSTS
from wakupush.pipeline.report.tables import HIDDEN, Row, Total

Tables = Mapping[str, list[Row]]

#: Days that are compared with as many before them.
WEEK: Final = 7
#: An hour is part of an outage if so many attempts for a platform failed or timed out, and so large a share of all.
OUTAGE_FAILURES: Final = 20
OUTAGE_SHARE: Final = 0.2
_PERMILLE: Final = 1000
_DELIVERED: Final = ("delivered_at_once", "delivered_by_retry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A service level, and how far it was met."""

    text: str
    #: The share that was good, 0 to 1; None if too few events are shown.
    share: float | None
    #: Whether the share is at most this: some of what was bad is hidden.
    is_at_most: bool = False

    @property
    def budget_used(self) -> float | None:
        """The share of the allowed bad events that happened: above 1 the objective was missed."""
        return None if self.share is None else (1 - self.share) / BUDGET

    @property
    def is_missed(self) -> bool:
        """Whether more was bad than is allowed."""
        return self.budget_used is not None and round(self.budget_used, 6) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Hours on end in which many attempts for a platform failed."""

    platform: str
    begin: datetime
    #: The first whole hour without such failures: deliveries are late by at most so much.
    end: datetime
    #: Attempts that failed.
    failures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A number of the last days, and of as many days before them."""

    name: str
    before: Total
    after: Total
    #: Whether the number is a share, 0 to 1.
    is_share: bool = False

    def text(self, value: Total) -> str:
        """Return a value as text."""
        return value.text(percent) if self.is_share else str(value)

    @property
    def difference(self) -> str:
        """By how much the number changed: a share by points, others by a part of what was before; empty if unknown."""
        if self.before.is_partial or self.after.is_partial:
            return ""
        if self.is_share:
            return f"{100 * (self.after.shown - self.before.shown):+.2f} points"
        return f"{100 * (self.after.shown / self.before.shown - 1):+.1f} %" if self.before.shown else ""


def stage(tables: Tables, *stages: str, first: date = date.min, last: date = date.max) -> Total:
    """Return the events of stages of the funnel, on some days."""
    rows = (row for row in tables["funnel_daily"] if row["stage"] in stages and first <= row["day"] <= last)
    return Total.of(rows, "events")


def deliveries(tables: Tables, first: date = date.min, last: date = date.max) -> Total:
    """Return the deliveries, at once and by a retry."""
    return stage(tables, *_DELIVERED, first=first, last=last)


def share_delivered(tables: Tables) -> float | None:
    """Return the deliveries as a share of the notifications that were admitted; None if no day shows both numbers."""
    admitted = delivered = 0.0
    for day in {row["day"] for row in tables["funnel_daily"]}:
        of_day = stage(tables, "admitted", first=day, last=day), deliveries(tables, day, day)
        if not any(total.is_partial for total in of_day):
            admitted += of_day[0].shown
            delivered += of_day[1].shown
    # A day may deliver what the one before it admitted.
    return min(1.0, delivered / admitted) if admitted else None


def objectives(tables: Tables, first: date = date.min, last: date = date.max) -> tuple[Objective, ...]:
    """Return the service levels on some days. A request that expired before it was read was answered too late."""
    unread = stage(tables, "request_expired", first=first, last=last)
    return (
        _in_time(tables, "answer", unread, first, last),
        _in_time(tables, "delivery", Total(0), first, last),
        _not_lost(tables, first, last),
    )


#: Of each row of `objectives_daily` the stages whose times it is about, and the text of the level.
_TIMES: Final = {
    "answer": (("answered",), f"answers within {ANSWER_SECONDS} s"),
    "delivery": (_DELIVERED, f"deliveries within {DELIVERY_SECONDS} s"),
}


def _in_time(tables: Tables, what: str, others: Total, first: date, last: date) -> Objective:
    """Return a level of times: the share of each day counts by its number of events, if that is shown.

    Args:
        others: late ones beside these events.
    """
    stages, text = _TIMES[what]
    weights = {row["day"]: 0 for row in tables["funnel_daily"]}
    for row in tables["funnel_daily"]:
        if row["stage"] in stages:
            weights[row["day"]] += row["events"] or 0
    rows = [row for row in tables["objectives_daily"] if row["what"] == what and first <= row["day"] <= last]
    shares = [(row["good_permille"] / _PERMILLE, weights.get(row["day"], 0)) for row in rows if not row["suppressed"]]
    weight = sum(of_day for _, of_day in shares)
    if rows and not weight:
        return Objective(text=text, share=None)
    good = sum(share * of_day for share, of_day in shares)
    return _objective(text, good, Total(weight - good) + others)


def _not_lost(tables: Tables, first: date, last: date) -> Objective:
    """Return the level of notifications that were delivered, of those and the lost ones.

    Days whose deliveries are hidden count nowhere.
    """
    delivered, lost = 0.0, Total(0)
    for day in {row["day"] for row in tables["funnel_daily"] if first <= row["day"] <= last}:
        of_day = deliveries(tables, day, day)
        if not of_day.is_partial:
            delivered += of_day.shown
            lost += stage(tables, "dead_letter", "expired", first=day, last=day)
    return _objective("notifications not lost", delivered, lost)


def _objective(text: str, good: float, bad: Total) -> Objective:
    total = good + bad.shown
    return Objective(text=text, share=good / total if total else None, is_at_most=bad.is_partial)


def outages(tables: Tables) -> list[Outage]:
    """Return the outages of platforms, by time, hours of a platform that follow each other as one.

    A token that died is no failure of the platform, if the number of these is shown. Hours whose attempts are hidden
    are left out.
    """
    hours: dict[tuple[str, datetime], dict[str, Total]] = defaultdict(lambda: defaultdict(lambda: Total(0)))
    for row in tables["load_hourly"]:
        if row["platform"]:
            hour = datetime.combine(row["day"], time(row["hour"]), UTC)
            hours[row["platform"], hour][row["kind"]] += Total.of([row], "events")
    outages_so_far: list[Outage] = []
    for (platform, hour), totals in sorted(hours.items()):
        failed = round(totals["failed"].shown + totals["unknown"].shown - totals["token_died"].shown)
        attempts = totals["attempt"]
        if attempts.is_partial or failed < max(OUTAGE_FAILURES, OUTAGE_SHARE * attempts.shown):
            continue
        begin = hour
        if outages_so_far and (outages_so_far[-1].platform, outages_so_far[-1].end) == (platform, hour):
            last = outages_so_far.pop()
            begin, failed = last.begin, last.failures + failed
        outages_so_far.append(Outage(platform=platform, begin=begin, end=hour + timedelta(hours=1), failures=failed))
    return sorted(outages_so_far, key=lambda outage: outage.begin)


def changes(tables: Tables, first: date, last: date) -> list[Change]:
    """Return what the last week has, and the week before; nothing if the report is of less than two weeks."""
    middle = last - timedelta(days=WEEK - 1)
    begin = middle - timedelta(days=WEEK)
    if begin < first:
        return []
    spans = ((begin, middle - timedelta(days=1)), (middle, last))

    def change(name: str, value: Callable[[date, date], Total], *, is_share: bool = False) -> Change:
        before, after = (value(*span) for span in spans)
        return Change(name=name, before=before, after=after, is_share=is_share)

    def of_stages(*stages: str) -> Callable[[date, date], Total]:
        return lambda begin, end: stage(tables, *stages, first=begin, last=end) / WEEK

    def share(number: int) -> Callable[[date, date], Total]:
        def of_days(begin: date, end: date) -> Total:
            objective = objectives(tables, begin, end)[number]
            return HIDDEN if objective.share is None or objective.is_at_most else Total(objective.share)

        return of_days

    def active(begin: date, end: date) -> Total:
        rows = (row for row in tables["tokens_daily"] if row["kind"] == "notified" and begin <= row["day"] <= end)
        return Total.of(rows, "devices") / WEEK

    return [
        change("messages a day", of_stages("received")),
        change("notifications a day", of_stages("admitted")),
        change("refused a day", of_stages("refused")),
        change("dead letters and expired, a day", of_stages("dead_letter", "expired")),
        change(f"answers within {ANSWER_SECONDS} s", share(0), is_share=True),
        change(f"deliveries within {DELIVERY_SECONDS} s", share(1), is_share=True),
        change("devices notified a day", active),
    ]


def cost_per_thousand(tables: Tables) -> float | None:
    """Return the seconds of CPU time that workers spent a thousand deliveries, by the costs that capacity plans with.

    Everything that the server handled counts: registrations, queries, and what others sent, too.
    """
    seconds = 0.0
    for row in tables["load_hourly"]:
        if row["kind"] in {"received", "foreign"} and row["queue"] in COSTS:
            cost = COSTS[row["queue"]]
            # What is not for us was counted when it was received, and costs less.
            seconds += (row["events"] or 0) * (cost if row["kind"] == "received" else COSTS["foreign"] - cost)
    retries = sum(
        row["events"] or 0 for row in tables["retries_daily"] if row["kind"] == "attempt" and row["attempt"] > 1
    )
    seconds += retries * COSTS["again"]
    delivered = deliveries(tables).shown
    return _PERMILLE * max(0.0, seconds) / delivered if delivered else None


def percent(share: float) -> str:
    """Return a share as text; what is not quite all is not rounded to it."""
    text = f"{100 * share:.2f} %"
    return text if share in {0, 1} or text not in {"0.00 %", "100.00 %"} else f"{100 * share:.4f} %"
