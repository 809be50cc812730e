"""How notifications are grouped into posts.

Source: docs/contracts/gorush.md, section 3: of many failures in one post gorush may lose some, which then read as
successes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from wakupush.model.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wakupush.gorush.outcomes import Outcome
    from wakupush.model.platforms import Platform

#: These concern a post as a whole and nothing of it was taken: posting one by one would tell no more.
_WHOLE_POST = {Failure.GORUSH_UNREACHABLE, Failure.GORUSH_THROTTLED}


class _Due(Protocol):
    @property
    def platform(self) -> Platform: ...


T = TypeVar("T", bound=_Due)


class Caution:
    """Remembers for which platforms notifications are posted one by one, because failures were seen.

    Args:
        seconds: for how long after a failure.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._until: dict[Platform, float] = {}

    def note(self, platform: Platform, outcomes: Iterable[Outcome], now: float) -> None:
        """Take note of what a post brought.

        Args:
            platform: of all its notifications.
            outcomes: of each.
            now: monotonic time in seconds.
        """
        if any(outcome is not None and outcome not in _WHOLE_POST for outcome in outcomes):
            self._until[platform] = now + self._seconds

    def advised(self, platform: Platform, now: float) -> bool:
        """Return whether notifications of a platform are posted one by one at a monotonic time in seconds."""
        return now < self._until.get(platform, now)


def split(due: Iterable[T], batch_size: int, caution: Caution, now: float) -> dict[Platform, list[list[T]]]:
    """Return notifications grouped into posts, by platform: a dead Firebase must not hold up iOS.

    Args:
        due: in the order in which they are due, which they keep within a platform.
        batch_size: notifications in a post at most.
        caution: for which platforms each post has one notification only.
        now: monotonic time in seconds.
    """
    platforms: dict[Platform, list[T]] = {}
    for each in due:
        platforms.setdefault(each.platform, []).append(each)
    posts = {}
    for platform, members in platforms.items():
        size = 1 if caution.advised(platform, now) else batch_size
        posts[platform] = [members[start : start + size] for start in range(0, len(members), size)]
    return posts
