"""The lanes of the platforms: who may post, how many posts at the same time, and whether as a probe.

Each platform has lanes of its own: a dead Firebase must not stop iOS. Who finds none leaves the work to the schedule.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from wakupush.gorush.batches import split
from wakupush.model.platforms import Platform
from wakupush.postgres import deliveries
from wakupush.runtime import metrics
from wakupush.runtime.settings import STORE_SECONDS
from wakupush.server.delivery.attempt import attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from wakupush.server.delivery.attempt import Failed, Posting
    from wakupush.server.delivery.resources import DeliveryResources

T = TypeVar("T")

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Posts that hold all slots of a platform longer than this open its breaker. All being taken is no fault by itself:
#: posted one by one, a burst fills them while every post is quick.
HANG_SECONDS: Final = 5.0


class Slots:
    """Threads for posts, some for each platform: one that outlives its task must not hold up the worker.

    What the schedule enqueued takes half of them at most: a backlog must not hold up new requests.

    Args:
        slots: posts at the same time, of all platforms together; at least one for each.
    """

    def __init__(self, slots: int) -> None:
        self._each = max(1, slots // len(Platform))
        #: Slots that are held, by whether the schedule enqueued what is posted in them.
        self._held: dict[Platform, Counter[bool]] = {platform: Counter() for platform in Platform}
        self._lock = Lock()
        self._threads = ThreadPoolExecutor(self._each * len(Platform), "post")
        #: When the post that a thread makes was begun, in monotonic seconds.
        self._begun: dict[Platform, dict[int, float]] = {platform: {} for platform in Platform}

    def reserve(self, platform: Platform, most: int, *, scheduled: bool = False) -> int:
        """Take as many slots of a platform as are free, at most `most`, and return how many."""
        with self._lock:
            held = self._held[platform]
            free = min(self._each - held.total(), self._limit(scheduled=scheduled) - held[scheduled])
            taken = max(0, min(most, free))
            held[scheduled] += taken
        return taken

    def release(self, platform: Platform, slots: int, *, scheduled: bool = False) -> None:
        """Give back slots that were reserved and are not needed."""
        with self._lock:
            self._held[platform][scheduled] -= slots

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
        """Say whether a platform has no free slot because posts take longer than this, all that are under way."""
        begun = list(self._begun[platform].values())
        return len(begun) >= self._limit(scheduled=scheduled) and max(begun) < time.monotonic() - seconds

    def close(self) -> None:
        """Wait for everything that is under way."""
        self._threads.shutdown()

    def _limit(self, *, scheduled: bool) -> int:
        return max(1, self._each // 2) if scheduled else self._each


def start(resources: DeliveryResources, postings: list[Posting], *, scheduled: bool = False) -> list[Future[Failed]]:
    """Start posting deliveries that are under our lease; the results are the failures that are final.

    The posts of a platform share its slots that are free. What finds none, or a breaker that is open, waits for the
    schedule.

    Args:
        resources: of this process.
        postings: what is to be posted.
        scheduled: whether the schedule enqueued them: then they leave slots to new requests.
    """
    settings = resources.settings
    a_post = settings.gorush.timeout + settings.gorush.connect_timeout + STORE_SECONDS
    until = time.monotonic() + settings.delivery.lease - a_post
    futures = []
    if gone := [posting for posting in postings if posting.target is None]:
        settled: Future[Failed] = Future()
        settled.set_result(attempt(resources, gone).failed)
        futures.append(settled)
    reachable = [posting for posting in postings if posting.target is not None]
    posts = split(reachable, resources.settings.gorush.batch_size, resources.caution, time.monotonic())
    for platform, own in posts.items():
        futures += _start_platform(resources, platform, own, until, scheduled=scheduled)
    return futures


def wait_for(futures: Iterable[Future[Failed]], seconds: float) -> Failed:
    """Return the failures of those posts that end within `seconds`; the others go on."""
    deadline = time.monotonic() + seconds
    failed: Failed = {}
    for future in futures:
        try:
            failed |= future.result(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            continue
    return failed


def _start_platform(
    resources: DeliveryResources, platform: Platform, posts: list[list[Posting]], until: float, *, scheduled: bool
) -> list[Future[Failed]]:
    """Start the posts of a platform: all of them in the slots that are free, or as many probes as its breaker gives."""
    slots = resources.slots
    lanes = slots.reserve(platform, len(posts), scheduled=scheduled)
    if not lanes:
        if slots.hang(platform, HANG_SECONDS, scheduled=scheduled):
            resources.breaker.open(platform)
        _put_back(resources, posts)
        return []
    waiting: list[list[Posting]] = []
    probes = resources.breaker.take_probes(platform, lanes)
    if probes is not None:
        slots.release(platform, lanes - probes, scheduled=scheduled)
        singles = [[posting] for post in posts for posting in post]
        lanes, posts, waiting = probes, singles[:probes], singles[probes:]
    work = partial(_work_through, resources, platform, until=until, probe=probes is not None)
    futures = [slots.submit(platform, partial(work, posts[lane::lanes]), scheduled=scheduled) for lane in range(lanes)]
    _put_back(resources, waiting)
    return futures


def _work_through(
    resources: DeliveryResources, platform: Platform, posts: list[list[Posting]], *, until: float, probe: bool
) -> Failed:
    """Make posts one after another, while the breaker lets them and their leases cover one more.

    A fault of ours ends that, too, and is logged here, for nobody may be waiting. The post that it met comes back as
    unknown when its lease ends; those after it were not made.

    Args:
        resources: of this process.
        platform: of all of them.
        posts: at least one.
        until: monotonic seconds after which none is begun.
        probe: whether they are probes.
    """
    failed: Failed = {}
    for position, post in enumerate(posts):
        # The first one was let through just now, and every lease covers one.
        if position and (time.monotonic() > until or not resources.breaker.is_closed(platform)):
            _put_back(resources, posts[position:])
            break
        resources.slots.begin(platform)
        try:
            brought = attempt(resources, post, probe=probe)
        except Exception:
            log.exception("post_failed", deliveries=len(post), put_back=len(posts) - position - 1)
            _put_back(resources, posts[position + 1 :])
            break
        resources.caution.note(platform, brought.posted, time.monotonic())
        resources.breaker.note(platform, brought.outcomes, probe=probe)
        failed |= brought.failed
    return failed


def _put_back(resources: DeliveryResources, posts: list[list[Posting]]) -> None:
    """Leave deliveries to the schedule, without an attempt."""
    if not posts:
        return
    waiting = [posting for post in posts for posting in post]
    metrics.DELIVERIES_DEFERRED.labels(waiting[0].delivery.platform.label).inc(len(waiting))
    with resources.pool.connection() as connection:
        deliveries.put_back(connection, [posting.delivery for posting in waiting])
    shown = resources.task_events
    shown.send([shown.put_off(posting.delivery) for posting in waiting if posting.shown])
