"""How notifications are grouped into posts.

Source: docs/contracts/gorush.md, section 3: of many failures in one post gorush may lose some, which then read as
successes.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from wakupush.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wakupush.gorush.notification import Notification, Platform
    from wakupush.gorush.outcomes import Outcome

#: These concern a post as a whole and nothing of it was taken: posting one by one would tell no more.
_WHOLE_POST = {Failure.GORUSH_UNREACHABLE, Failure.GORUSH_THROTTLED}


class Caution:
    """Remembers for which platforms notifications are posted one by one, because failures were seen.

    Args:
        seconds: for how long after a failure.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._until: dict[Platform, float] = {}

    def note(self, notifications: Iterable[Notification], outcomes: Iterable[Outcome], now: float) -> None:
        """Take note of what a post brought.

        Args:
            notifications: what was posted.
            outcomes: of each.
            now: monotonic time in seconds.
        """
        for notification, outcome in zip(notifications, outcomes, strict=True):
            if outcome is not None and outcome not in _WHOLE_POST:
                self._until[notification.platform] = now + self._seconds

    def advised(self, platform: Platform, now: float) -> bool:
        """Return whether notifications of a platform are posted one by one at a monotonic time in seconds."""
        return now < self._until.get(platform, now)


def split(
    notifications: Iterable[Notification], batch_size: int, caution: Caution, now: float
) -> list[list[Notification]]:
    """Return notifications grouped into posts, each of one platform: a dead Firebase must not hold up iOS.

    Args:
        notifications: in the order in which they are due, which they keep within a platform.
        batch_size: notifications in a post at most.
        caution: for which platforms each post has one notification only.
        now: monotonic time in seconds.
    """
    posts = []
    in_order = sorted(notifications, key=lambda each: each.platform.value)
    for platform, group in groupby(in_order, key=lambda each: each.platform):
        size = 1 if caution.advised(platform, now) else batch_size
        members = list(group)
        posts += [members[start : start + size] for start in range(0, len(members), size)]
    return posts
