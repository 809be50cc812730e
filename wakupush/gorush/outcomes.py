"""Reading the outcome of each notification from gorush's answer to a post.

Source: docs/reference/contracts/gorush.md, sections 2 to 4. A 200 alone means nothing: ``counts`` is how much was
handed over, ``logs`` has the failures only. Firebase's total failures leave no trace in the answer; only the feedback
webhook reports them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeAlias

from wakupush.gorush.wording import classify
from wakupush.model.failures import Failure
from wakupush.model.notifications import Notification
from wakupush.model.platforms import Platform

#: ``None`` if gorush handed the notification to its platform without an error, else why not.
PostOutcome: TypeAlias = Failure | None

_BY_STATUS: dict[int, Failure] = {
    HTTPStatus.BAD_REQUEST: Failure.GORUSH_REFUSED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: Failure.GORUSH_REFUSED,
    HTTPStatus.UNPROCESSABLE_ENTITY: Failure.GORUSH_REFUSED,
    HTTPStatus.TOO_MANY_REQUESTS: Failure.GORUSH_THROTTLED,
}
#: By the first digit of the status. A full queue answers 500 when a part is already queued.
_BY_CLASS = {2: Failure.GORUSH_UNREADABLE, 5: Failure.GORUSH_FAILED}

_PLATFORMS = {platform.label: platform for platform in Platform}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A failure that gorush reports, in an answer or by its feedback webhook."""

    #: Empty if it was posted without one.
    notif_id: str
    #: None for a platform that wakupush does not serve.
    platform: Platform | None
    #: May hold the device token; never shown.
    error: str = field(repr=False)


def read_answer(notifications: Sequence[Notification], status: int, body: bytes) -> list[PostOutcome]:
    """Return the outcome of each notification of a post.

    Notifications are distinguished by their ``notif_id`` alone. An entry without a known one belongs to the only
    notification of its platform; if there are several, each that has no entry of its own is `GORUSH_UNREADABLE`: one
    of them failed, the others were pushed. Of several entries for a notification the last counts.

    If ``counts`` falls short by exactly what one platform has in the post, that platform is switched off and its
    notifications are `GORUSH_DROPPED`. If it falls short otherwise, all notifications without an entry are.

    Args:
        status: the HTTP status. One that gorush does not answer with (a wrong path, a login page) is
            `GORUSH_UNREACHABLE`: it took nothing.

    Returns:
        As many outcomes as notifications, in their order.
    """
    if status != HTTPStatus.OK:
        failure = _BY_STATUS.get(status) or _BY_CLASS.get(status // 100, Failure.GORUSH_UNREACHABLE)
        return [failure] * len(notifications)
    try:
        counts, entries = _parse(body)
    except (ValueError, RecursionError):
        return [Failure.GORUSH_UNREADABLE] * len(notifications)
    reported_failures = _reported_failures(notifications, entries)
    uncounted_failures = _uncounted_failures(notifications, counts)
    return [
        reported_failures.get(notification.notif_id, uncounted_failures.get(notification.platform))
        for notification in notifications
    ]


def read_feedback(body: bytes) -> tuple[str, Failure] | None:
    """Return the ``notif_id`` and the failure that a call of gorush's feedback webhook reports.

    Returns:
        None if the call contains nothing that can be matched.
    """
    try:
        entry = _entry(json.loads(body))
    except (ValueError, RecursionError):
        return None
    if not entry.notif_id or entry.platform is None:
        return None
    return entry.notif_id, classify(entry.platform, entry.error)


def _parse(body: bytes) -> tuple[int, list[LogEntry]]:
    match json.loads(body):
        case {"counts": int(counts), "logs": [*entries]} if not isinstance(counts, bool):
            return counts, [_entry(entry) for entry in entries]
    raise ValueError("not an answer of gorush")


def _entry(value: Any) -> LogEntry:
    match value:
        case {"platform": str(label), "error": str(error)}:
            notif_id = value.get("notif_id", "")
            if isinstance(notif_id, str):
                return LogEntry(notif_id, _PLATFORMS.get(label), error)
    raise ValueError("not a log entry of gorush")


def _reported_failures(notifications: Sequence[Notification], entries: Iterable[LogEntry]) -> dict[str, Failure]:
    by_id = {notification.notif_id: notification for notification in notifications}
    failures: dict[str, Failure] = {}
    suspects: list[Notification] = []
    for entry in entries:
        match = by_id.get(entry.notif_id)
        candidates = [match] if match else _of_platform(notifications, entry.platform)
        if len(candidates) == 1:
            failures[candidates[0].notif_id] = classify(candidates[0].platform, entry.error)
        else:
            suspects += candidates
    for notification in suspects:
        failures.setdefault(notification.notif_id, Failure.GORUSH_UNREADABLE)
    return failures


def _of_platform(notifications: Sequence[Notification], platform: Platform | None) -> Sequence[Notification]:
    return [notification for notification in notifications if notification.platform is platform] or notifications


def _uncounted_failures(notifications: Iterable[Notification], counts: int) -> dict[Platform, Failure]:
    targets: Counter[Platform] = Counter()
    for notification in notifications:
        targets[notification.platform] += notification.targets
    short = targets.total() - counts
    if short == 0:
        return {}
    if short < 0:
        return dict.fromkeys(targets, Failure.GORUSH_UNREADABLE)
    switched_off = [platform for platform, targets in targets.items() if targets == short]
    return dict.fromkeys(switched_off if len(switched_off) == 1 else targets, Failure.GORUSH_DROPPED)
