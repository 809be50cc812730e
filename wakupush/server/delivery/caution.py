"""What is posted by itself, as it would spoil the post of others, or be lost in it."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Final

from wakupush.model.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wakupush.model.platforms import Platform
    from wakupush.model.registrations import Installation
    from wakupush.server.delivery.posting import Posting

#: These concern a post as a whole and nothing of it was taken: posting one by one would tell no more.
_WHOLE_POST: Final = {Failure.GORUSH_UNREACHABLE, Failure.GORUSH_THROTTLED}
#: Seconds for which a device is remembered for whose notification gorush refuses a post, and how many are.
REFUSED_SECONDS: Final = 3600.0
MOST_REFUSED: Final = 10_000


class Caution:
    """Remembers for which platforms and devices notifications are posted one by one. Threads may share it.

    For platforms, because failures were seen: of many failures in one post gorush may lose some, which then read as
    successes (docs/contracts/gorush.md, 3). For devices, because gorush refused the post: it refuses all that is in it,
    and each costs a post of its own then. Whoever registers such a device is to pay that once.

    Args:
        seconds: for how long after a failure.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._until: dict[Platform, float] = {}
        #: Until when a device's notifications are posted alone, the latest that was refused last.
        self._refused: OrderedDict[Installation, float] = OrderedDict()
        self._lock = Lock()

    def note(self, platform: Platform, outcomes: Iterable[Failure | None], now: float) -> None:
        """Take note of what a post brought.

        Args:
            platform: of all its notifications.
            outcomes: of each.
            now: monotonic time in seconds.
        """
        if any(outcome is not None and outcome not in _WHOLE_POST for outcome in outcomes):
            self._until[platform] = now + self._seconds

    def note_refused(self, posting: Posting, now: float) -> None:
        """Take note that gorush refuses a post that holds nothing but this (monotonic time in seconds)."""
        with self._lock:
            self._refused[posting.delivery.installation] = now + REFUSED_SECONDS
            self._refused.move_to_end(posting.delivery.installation)
            if len(self._refused) > MOST_REFUSED:
                self._refused.popitem(last=False)

    def split(self, postings: Iterable[Posting], batch_size: int, now: float) -> dict[Platform, list[list[Posting]]]:
        """Return what has a target grouped into posts, by platform; in a platform the order stays.

        Devices whose posts were refused come after the others of their platform.

        Args:
            postings: in the order in which they are due.
            batch_size: of them in a post at most.
            now: monotonic time in seconds.
        """
        platforms: dict[Platform, list[Posting]] = {}
        alone: dict[Platform, list[Posting]] = {}
        for posting in postings:
            if posting.target is not None:
                is_refused = now < self._refused.get(posting.delivery.installation, now)
                (alone if is_refused else platforms).setdefault(posting.target.platform, []).append(posting)
        posts: dict[Platform, list[list[Posting]]] = {}
        for platform, members in platforms.items():
            size = 1 if now < self._until.get(platform, now) else batch_size
            posts[platform] = [members[start : start + size] for start in range(0, len(members), size)]
        for platform, members in alone.items():
            posts.setdefault(platform, []).extend([posting] for posting in members)
        return posts
