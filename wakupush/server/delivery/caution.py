"""Which notifications are posted one by one, because their app's platform or their device had failures lately."""

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Final

from wakupush.model.failures import Failure
from wakupush.model.platforms import AppPlatform
from wakupush.model.registrations import Installation
from wakupush.server.delivery.posting import Posting

#: These concern a post as a whole and nothing of it was taken: posting one by one would show no more.
_WHOLE_POST: Final = {Failure.GORUSH_UNREACHABLE, Failure.GORUSH_THROTTLED}
#: Seconds for which a platform is remembered after a failure.
FAILED_SECONDS: Final = 60.0
#: Seconds for which a device is remembered if gorush refuses its notification, and how many devices are.
REFUSED_SECONDS: Final = 3600.0
MOST_REFUSED: Final = 10_000


class Caution:
    """Remembers for which platforms and devices notifications are posted one by one. Threads may share it.

    Platforms, because failures were seen: of many failures in one post gorush may lose some, which then look like
    successes (docs/reference/contracts/gorush.md, 3). Devices, because gorush refused their post: it refuses the whole
    post, and then each notification in it costs a separate one. A device is to cause that only once.
    """

    def __init__(self) -> None:
        self._until: dict[AppPlatform, float] = {}
        #: Until when a device's notifications are posted alone; the device that was refused last comes last.
        self._refused: OrderedDict[Installation, float] = OrderedDict()
        self._lock = Lock()

    def note(self, app_platform: AppPlatform, outcomes: Iterable[Failure | None], now: float) -> None:
        """Take note of the outcomes of a post.

        Args:
            now: monotonic time in seconds.
        """
        if any(outcome is not None and outcome not in _WHOLE_POST for outcome in outcomes):
            self._until[app_platform] = now + FAILED_SECONDS

    def note_refused(self, posting: Posting, now: float) -> None:
        """Take note that gorush refused a post with this delivery alone (`now` in monotonic seconds)."""
        with self._lock:
            self._refused[posting.delivery.installation] = now + REFUSED_SECONDS
            self._refused.move_to_end(posting.delivery.installation)
            if len(self._refused) > MOST_REFUSED:
                self._refused.popitem(last=False)

    def split(self, postings: Iterable[Posting], batch_size: int, now: float) -> dict[AppPlatform, list[list[Posting]]]:
        """Return the postings that have a target, grouped into posts by app and platform; within one the order stays.

        Devices whose posts were refused come after the others of their app and platform.

        Args:
            postings: in the order in which they are due.
            batch_size: of them in a post at most.
            now: monotonic time in seconds.
        """
        members: dict[AppPlatform, list[Posting]] = {}
        alone: dict[AppPlatform, list[Posting]] = {}
        for posting in postings:
            if posting.target is not None:
                is_refused = now < self._refused.get(posting.delivery.installation, now)
                (alone if is_refused else members).setdefault(posting.delivery.app_platform, []).append(posting)
        posts: dict[AppPlatform, list[list[Posting]]] = {}
        for app_platform, own in members.items():
            size = 1 if now < self._until.get(app_platform, now) else batch_size
            posts[app_platform] = [own[start : start + size] for start in range(0, len(own), size)]
        for app_platform, own in alone.items():
            posts.setdefault(app_platform, []).extend([posting] for posting in own)
        return posts
