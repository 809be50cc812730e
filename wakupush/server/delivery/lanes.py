"""The lanes of the platforms: who may post, how many posts at the same time, how large, and whether as a probe.

Each platform has its own lanes: a dead Firebase must not stop iOS. Work that finds none is left to the schedule.
"""

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Lock, get_ident
from typing import Final, TypeVar

import structlog

from wakupush.model.failures import Failure
from wakupush.model.platforms import Platform
from wakupush.model.registrations import Installation
from wakupush.server.delivery.breaker import Breaker
from wakupush.server.delivery.posting import Failed, Posting, Work

T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Posts that hold all slots of a platform longer than this open its breaker. Full slots alone are not a fault: a burst
#: that is posted one by one fills them while every post is quick.
HANG_SECONDS: Final = 5.0
#: These concern a post as a whole and nothing of it was taken: posting one by one would show no more.
_WHOLE_POST: Final = {Failure.GORUSH_UNREACHABLE, Failure.GORUSH_THROTTLED}
#: Seconds for which a device is remembered if gorush refuses its notification, and how many devices are.
REFUSED_SECONDS: Final = 3600.0
MOST_REFUSED: Final = 10_000


class Slots:
    """Threads for posts, some for each platform: one that outlives its task must not hold up the worker.

    Posts of the schedule take half of them at most: a backlog must not hold up new requests.

    Args:
        slots: posts at the same time, of all platforms together; at least one for each.
    """

    def __init__(self, slots: int) -> None:
        self._each = max(1, slots // len(Platform))
        #: Slots in use, by whether the schedule enqueued what is posted in them.
        self._used: dict[Platform, Counter[bool]] = {platform: Counter() for platform in Platform}
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(self._each * len(Platform), "post")
        #: When the post that a thread makes was begun, in monotonic seconds.
        self._begun: dict[Platform, dict[int, float]] = {platform: {} for platform in Platform}

    def reserve(self, platform: Platform, most: int, *, scheduled: bool = False) -> int:
        """Take as many slots of a platform as are free, at most `most`, and return how many."""
        with self._lock:
            used = self._used[platform]
            free = min(self._each - used.total(), self._limit(scheduled=scheduled) - used[scheduled])
            slots = max(0, min(most, free))
            used[scheduled] += slots
        return slots

    def release(self, platform: Platform, slots: int, *, scheduled: bool = False) -> None:
        """Give back slots that were reserved and are not needed."""
        with self._lock:
            self._used[platform][scheduled] -= slots

    def submit(self, platform: Platform, work: Callable[[], T], *, scheduled: bool = False) -> Future[T]:
        """Start work in a slot that was reserved; it is given back at the end."""

        def run() -> T:
            try:
                return work()
            finally:
                self._begun[platform].pop(get_ident(), None)
                self.release(platform, 1, scheduled=scheduled)

        return self._threads.submit(run)

    def begin(self, platform: Platform) -> None:
        """Say that the calling thread, in its slot, begins a post."""
        self._begun[platform][get_ident()] = time.monotonic()

    def hang(self, platform: Platform, seconds: float, *, scheduled: bool = False) -> bool:
        """Return whether a platform has no free slot because all its posts under way take longer than this."""
        starts = list(self._begun[platform].values())
        return len(starts) >= self._limit(scheduled=scheduled) and max(starts) < time.monotonic() - seconds

    def close(self) -> None:
        """Wait for everything that is under way."""
        self._threads.shutdown()

    def _limit(self, *, scheduled: bool) -> int:
        return max(1, self._each // 2) if scheduled else self._each


class Caution:
    """Remembers for which platforms and devices notifications are posted one by one. Threads may share it.

    Platforms, because failures were seen: of many failures in one post gorush may lose some, which then look like
    successes (docs/reference/contracts/gorush.md, 3). Devices, because gorush refused their post: it refuses the whole
    post, and then each notification in it costs a separate one. A device is to cause that only once.

    Args:
        seconds: for how long after a failure.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._until: dict[Platform, float] = {}
        #: Until when a device's notifications are posted alone; the device that was refused last comes last.
        self._refused: OrderedDict[Installation, float] = OrderedDict()
        self._lock = Lock()

    def note(self, platform: Platform, outcomes: Iterable[Failure | None], now: float) -> None:
        """Take note of the outcomes of a post.

        Args:
            now: monotonic time in seconds.
        """
        if any(outcome is not None and outcome not in _WHOLE_POST for outcome in outcomes):
            self._until[platform] = now + self._seconds

    def note_refused(self, posting: Posting, now: float) -> None:
        """Take note that gorush refused a post with this delivery alone (`now` in monotonic seconds)."""
        with self._lock:
            self._refused[posting.delivery.installation] = now + REFUSED_SECONDS
            self._refused.move_to_end(posting.delivery.installation)
            if len(self._refused) > MOST_REFUSED:
                self._refused.popitem(last=False)

    def split(self, postings: Iterable[Posting], batch_size: int, now: float) -> dict[Platform, list[list[Posting]]]:
        """Return the postings that have a target, grouped into posts by platform; within a platform the order stays.

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


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of a process. Its threads may share them."""

    slots: Slots
    breaker: Breaker
    caution: Caution

    def start(self, postings: list[Posting], work: Work, *, scheduled: bool) -> list[Future[Failed]]:
        """Start posting what has a target; the results are the failures that are final.

        The posts of a platform share its free slots. If there is none, or the breaker is open, they are put back.

        Args:
            postings: under leases of ours.
            scheduled: whether the schedule enqueued them: then they leave slots to new requests.
        """
        posts = self.caution.split(postings, work.batch_size, time.monotonic())
        return [
            future
            for platform, own in posts.items()
            for future in self._start_platform(platform, own, work, scheduled=scheduled)
        ]

    def _start_platform(
        self, platform: Platform, posts: list[list[Posting]], work: Work, *, scheduled: bool
    ) -> list[Future[Failed]]:
        """Start the posts of a platform: in all free slots, or as many probes as its breaker gives, proven first."""
        slots = self.slots.reserve(platform, len(posts), scheduled=scheduled)
        if not slots:
            if self.slots.hang(platform, HANG_SECONDS, scheduled=scheduled):
                self.breaker.open(platform)
            work.put_back(_flat(posts))
            return []
        waiting: list[list[Posting]] = []
        probes = self.breaker.take_probes(platform, slots)
        if probes is not None:
            self.slots.release(platform, slots - probes, scheduled=scheduled)
            singles = [[posting] for posting in sorted(_flat(posts), key=lambda posting: not posting.proven)]
            slots, posts, waiting = probes, singles[:probes], singles[probes:]
        futures = []
        for slot in range(slots):
            share = posts[slot::slots]
            run = partial(self._work_through, platform, share, work=work, probe=probes is not None)
            futures.append(self.slots.submit(platform, run, scheduled=scheduled))
        if waiting:
            work.put_back(_flat(waiting))
        return futures

    def _work_through(self, platform: Platform, posts: list[list[Posting]], *, work: Work, probe: bool) -> Failed:
        """Make posts one after another, while the breaker lets them and their leases cover one more.

        If one is refused as a whole, each of its deliveries is posted alone, so that one bad notification fails alone.

        An error in our own code ends this, too. It is logged here, because no caller may be waiting. The post that it
        met comes back as unknown when its lease ends; the posts after it were not made.
        """
        failed: Failed = {}
        waiting, is_first, was_refused = deque(posts), True, False
        while waiting:
            if not is_first and (time.monotonic() > work.until or not self.breaker.is_closed(platform)):
                break
            post, is_first = waiting.popleft(), False
            self.slots.begin(platform)
            try:
                result = work.attempt(post, probe)
            except Exception:
                log.exception("post_failed", deliveries=len(post), put_back=len(waiting))
                break
            self.caution.note(platform, result.platform_failures, time.monotonic())
            if len(post) == 1 and Failure.GORUSH_REFUSED in result.outcomes:
                self.caution.note_refused(post[0], time.monotonic())
            was_refused = was_refused or bool(result.refused)
            waiting.extendleft([posting] for posting in reversed(result.refused))
            self.breaker.note(platform, result.routes, probe=probe)
            failed |= result.failed
        if waiting:
            if was_refused:
                # Together they would be refused again, and again leave no time for posts one by one.
                self.caution.note(platform, [Failure.GORUSH_REFUSED], time.monotonic())
            work.put_back(_flat(waiting))
        return failed


def _flat(posts: Iterable[list[Posting]]) -> list[Posting]:
    return [posting for post in posts for posting in post]
