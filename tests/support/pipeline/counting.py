"""The tables of the report, counted by plain Python from the events as the server wrote them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from typing import Any

from support.pipeline.happenings import day_of
from wakupush.model.events import Event

Key = tuple[Any, ...]


def person(event: Event) -> bytes | str | None:
    return event.key_pseudonym or event.trace_id


def people(group: Iterable[Event]) -> int:
    """Return how many people events are of; those that name neither a user nor a message are of others each."""
    group = list(group)
    nameless = sum(event.count for event in group if person(event) is None)
    return len({person(event) for event in group} - {None}) + nameless


def number(group: Iterable[Event]) -> int:
    """Return how many messages or notifications events stand for."""
    return sum(event.count for event in group)


def cells(events: Iterable[Event], key: Callable[[Event], Key | None]) -> dict[Key, list[Event]]:
    groups = defaultdict(list)
    for event in events:
        if (name := key(event)) is not None:
            groups[name].append(event)
    return groups


def hour(event: Event) -> int:
    return datetime.fromtimestamp(event.time, UTC).hour


def stage_of(kind: str, attempt: int | None, platform: str | None = None) -> str:
    if kind == "expired":
        return "expired" if platform else "request_expired"
    if kind != "delivered":
        return kind
    return "delivered_at_once" if attempt == 1 else "delivered_by_retry"


def stage(event: Event) -> str:
    return stage_of(str(event.kind), event.attempt, event.platform)


def kind_of(stage: str) -> str:
    """Return the kind of the events of a stage."""
    if stage.startswith("delivered_"):
        return "delivered"
    return "expired" if stage == "request_expired" else stage


def by_column(columns: Iterable[str], key: Key) -> dict[str, Any]:
    """Return what names a row, with the columns beside its keys that it is a part of wholes by."""
    row = dict(zip(columns, key, strict=True))
    if "stage" in row:
        return row | {"kind": kind_of(row["stage"])}
    if "attempt" in row:
        row |= {"stage": stage_of(row["kind"], row["attempt"])}
    return row | {"has_platform": bool(row["platform"])} if "platform" in row else row


WHAT = {"received": "queue_wait", "answered": "answer", "delivered": "delivery"}
KEYS = {
    "funnel_daily": lambda e: (day_of(e), stage(e)),
    "pushes_daily": lambda e: (
        (day_of(e), str(e.kind), e.app or "", e.push_type) if e.kind in {"admitted", "delivered"} else None
    ),
    "load_hourly": lambda e: (day_of(e), hour(e), e.queue, str(e.kind), e.platform or ""),
    "retries_daily": lambda e: (
        (day_of(e), e.platform, e.attempt, str(e.kind))
        if e.kind in {"attempt", "delivered", "failed", "unknown"}
        else None
    ),
    "failures_daily": lambda e: (
        (day_of(e), str(e.kind), e.failure, e.platform or "", min(e.attempt or 0, 3)) if e.failure else None
    ),
    "refusals_hourly": lambda e: (day_of(e), hour(e), e.failure) if e.kind == "refused" else None,
    "filtered_daily": lambda e: (day_of(e), e.reason) if e.kind == "filtered" else None,
}


def percentile(values: list[int], share: float) -> int:
    return sorted(values)[math.ceil(share * len(values)) - 1]


def latency(events: list[Event]) -> dict[Key, tuple[Any, ...]]:
    groups = cells(events, lambda e: (day_of(e), WHAT[e.kind], e.queue, e.platform or "") if e.kind in WHAT else None)
    return percentiles(groups, lambda e: e.queue_wait if e.kind == "received" else e.latency)


def arrivals(events: list[Event]) -> dict[Key, tuple[Any, ...]]:
    groups = cells(events, lambda e: (day_of(e), -1 if e.shard is None else e.shard) if e.age is not None else None)
    return percentiles(groups, lambda e: e.age)


def percentiles(groups: dict[Key, list[Event]], value: Callable[[Event], float]) -> dict[Key, tuple[Any, ...]]:
    rows = {}
    for key, group in groups.items():
        values = [round(1000 * value(e)) for e in group for _ in range(e.count)]
        measures = (len(values), *(percentile(values, share) for share in (0.5, 0.95, 0.99)))
        rows[key] = (people(group), *measures)
    return rows


def objectives(events: list[Event]) -> dict[Key, tuple[Any, ...]]:
    limits = {"answered": ("answer", 3.0), "delivered": ("delivery", 10.0)}
    groups = cells(events, lambda e: (day_of(e), limits[e.kind][0]) if e.kind in limits else None)
    rows = {}
    for key, group in groups.items():
        late = number(e for e in group if e.latency > limits[e.kind][1])
        # Half is rounded up.
        permille = math.floor(1000 * (number(group) - late) / number(group) + 0.5)
        rows[key] = (people(group), permille if not late else min(999, permille))
    return rows


def tokens(events: list[Event]) -> dict[Key, tuple[Any, ...]]:
    kinds = {kind: kind for kind in ("registered", "unregistered", "token_died")} | {"admitted": "notified"}
    groups = cells(events, lambda e: (day_of(e), e.platform, kinds[e.kind]) if e.kind in kinds else None)
    return {key: (people(group), len({e.installation_pseudonym for e in group})) for key, group in groups.items()}


def lives(events: list[Event], period: date) -> dict[Key, tuple[Any, ...]]:
    rows: dict[Key, list[bytes | str]] = defaultdict(list)
    for (platform, _), group in cells(events, lambda e: (e.platform, e.installation_pseudonym)).items():
        began = min((day_of(e) for e in group if e.kind == "registered"), default=None)
        end = max((day_of(e) for e in group if e.kind == "token_died"), default=None)
        if began and end and end >= began:
            rows[period, platform, (end - began).days].append(person(group[0]))
    return {key: (len(set(owners)), len(owners)) for key, owners in rows.items()}


def usage(events: list[Event], period: date) -> dict[Key, tuple[Any, ...]]:
    rows: dict[Key, list[bytes | str]] = defaultdict(list)
    for (platform, _), group in cells(events, lambda e: (e.platform, e.installation_pseudonym)).items():
        kinds = {e.kind for e in group}
        if "registered" in kinds:
            rows[period, platform, "notified" if "admitted" in kinds else "unused"].append(person(group[0]))
    return {key: (len(set(owners)), len(owners)) for key, owners in rows.items()}


def last_weeks(events: list[Event], period: date) -> dict[Key, tuple[Any, ...]]:
    rows: dict[Key, list[bytes | str]] = defaultdict(list)
    active = [e for e in events if e.kind in {"registered", "admitted"}]
    for (platform, _), group in cells(active, lambda e: (e.platform, e.installation_pseudonym)).items():
        weeks = [(day_of(e) - period).days // 7 for e in group]
        if any(week == 0 and e.kind == "registered" for week, e in zip(weeks, group, strict=True)):
            rows[period, platform, max(weeks)].append(person(group[0]))
    return {key: (len(set(owners)), len(owners)) for key, owners in rows.items()}


def minutes(events: list[Event]) -> dict[Key, tuple[Any, ...]]:
    groups = cells(events, lambda e: (day_of(e), hour(e), e.queue) if e.kind == "received" else None)
    rows = {}
    for key, group in groups.items():
        by_minute = cells(group, lambda e: (int(e.time) // 60,))
        rows[key] = (number(group), number(group), max(map(number, by_minute.values())))
    return rows


def unusual(events: list[Event]) -> list[tuple[Any, ...]]:
    """Return day, kind and events, without the pseudonym, which is another one in the lake."""
    rows = []
    for (day, kind), group in cells(
        events, lambda e: (day_of(e), str(e.kind)) if e.kind in {"admitted", "queried"} else None
    ).items():
        of_users = [number(people) for people in cells(group, lambda e: (e.key_pseudonym,)).values()]
        mean = sum(of_users) / len(of_users)
        rows += [(day, kind, count) for count in of_users if count >= 100 and count >= 20 * mean]
    return sorted(rows)


def every(events: list[Event], period: date) -> dict[str, dict[Key, tuple[Any, ...]]]:
    """Return the rows of every table that may tell of too few: by key, the people and the values."""
    simple = {
        name: {group_key: (people(group), number(group)) for group_key, group in cells(events, key).items()}
        for name, key in KEYS.items()
    }
    return simple | {
        "latency_daily": latency(events),
        "objectives_daily": objectives(events),
        "arrivals_daily": arrivals(events),
        "load_minutes_daily": minutes(events),
        "tokens_daily": tokens(events),
        "devices_by_last_week": last_weeks(events, period),
        "token_lives": lives(events, period),
        "registrations_used": usage(events, period),
    }


#: Tables whose rows add up to a row of another: that table, what the sum and its parts have in common, by their keys.
SUMS = {
    "failures_daily": [
        ("retries_daily", lambda of: (of[0], of[3], of[1], min(of[2], 3)), lambda part: (part[0], part[1], *part[3:]))
    ],
    "refusals_hourly": [
        ("failures_daily", lambda of: (of[0], of[2]) if of[1] == "refused" else None, lambda part: (part[0], part[2])),
        ("load_hourly", lambda of: of[:2] if of[3] == "refused" else None, lambda part: part[:2]),
    ],
    "load_minutes_daily": [("load_hourly", lambda of: of[:3] if of[3] == "received" else None, lambda part: part)],
}


def parts_of_hidden(name: str, rows: Iterable[Key], hidden: dict[str, set[Key]]) -> set[Key]:
    """Return the rows of a table that add up to one that another table hides.

    Args:
        hidden: the rows that other tables hide.
    """
    return {
        key
        for table, of_sum, of_part in SUMS.get(name, ())
        for key in rows
        if of_part(key) in map(of_sum, hidden[table])
    }


def hidden_keys(
    rows: dict[Key, tuple[Any, ...]], wholes: Iterable[Callable[[Key], Key]], k: int, before: set[Key] = frozenset()
) -> set[Key]:
    """Return the rows that would tell of fewer than k people, alone or less from their totals.

    Args:
        before: rows that are hidden because another table hides what they add up to.
    """
    few = {key for key, (people, *_) in rows.items() if people < k}
    result = few | before
    while True:
        more = set()
        for whole in wholes:
            groups: dict[Key, list[Key]] = defaultdict(list)
            for key in rows:
                groups[whole(key)].append(key)
            for group in groups.values():
                secret = [key for key in group if key in result]
                candidates = sorted((rows[key][0], key) for key in group if key not in result)
                is_safe = not secret or (len(secret) > 1 and not few.issuperset(secret))
                if candidates and not is_safe:
                    more.add(candidates[0][1])
        if not more:
            return result
        result |= more
