"""Starting posts to gorush: who may post, how many posts at the same time, how large, and whether as a probe.

Deliveries that find no free slot are left to beat.
"""

import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from wakupush.model.failures import Failure
from wakupush.model.platforms import AppPlatform
from wakupush.server.delivery.breaker import Breaker
from wakupush.server.delivery.caution import Caution
from wakupush.server.delivery.posting import Failed, Posting, Work
from wakupush.server.delivery.slots import Slots

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Posts that hold all slots of a platform longer than this are a fault of the route. Full slots alone are none: a burst
#: that is posted one by one fills them while every post is quick.
HANG_SECONDS: Final = 5.0
#: By how many more posts may be refused than get through, for those that are refused to be halved.
MOST_REFUSALS: Final = 5


@dataclass(frozen=True, slots=True)
class Posts:
    """Starts the posts of a process: as many as there are slots, or as few as the breaker lets through."""

    slots: Slots
    breaker: Breaker
    caution: Caution

    def start(self, postings: list[Posting], work: Work, *, scheduled: bool) -> list[Future[Failed]]:
        """Start posting what has a target; the results are the failures that are final.

        The posts of a platform share its free slots. If there is none, or the breaker is open, they are put back.

        Args:
            postings: under leases of ours.
            scheduled: whether beat enqueued them: then they leave slots to new requests.
        """
        posts = self.caution.split(postings, work.batch_size, time.monotonic())
        return [
            future
            for app_platform, own in posts.items()
            for future in self._start_app(app_platform, own, work, scheduled=scheduled)
        ]

    def _start_app(
        self, app_platform: AppPlatform, posts: list[list[Posting]], work: Work, *, scheduled: bool
    ) -> list[Future[Failed]]:
        """Start the posts of a platform: in all free slots, or as many probes as its breaker gives, proven first.

        What finds no thread is put back, too.
        """
        slots = self.slots.reserve(app_platform, len(posts), scheduled=scheduled)
        if not slots:
            self.breaker.note_full(app_platform)
            if self.slots.hang(app_platform, HANG_SECONDS, scheduled=scheduled):
                self.breaker.note_hang(app_platform)
            work.put_back(_flat(posts))
            return []
        deferred: list[list[Posting]] = []
        try:
            probes = self.breaker.take_probes(app_platform, slots)
        except BaseException:  # for example the time limit of the task
            self.slots.release(app_platform, slots, scheduled=scheduled)
            raise
        if probes is not None:
            self.slots.release(app_platform, slots - probes, scheduled=scheduled)
            singles = [[posting] for posting in sorted(_flat(posts), key=lambda posting: not posting.proven)]
            slots, posts, deferred = probes, singles[:probes], singles[probes:]
        shares = [posts[slot::slots] for slot in range(slots)]
        futures: list[Future[Failed]] = []
        try:
            for share in shares:
                run = partial(self._work_through, app_platform, share, work=work, probe=probes is not None)
                futures.append(self.slots.submit(app_platform, run, scheduled=scheduled))
        except RuntimeError:
            remaining = shares[len(futures) :]
            self.slots.release(app_platform, len(remaining), scheduled=scheduled)
            for share in remaining:
                deferred += share
                self.breaker.note(app_platform, [], probe=probes is not None)
            log.exception("no_thread")
        if deferred:
            work.put_back(_flat(deferred))
        return futures

    def _work_through(
        self, app_platform: AppPlatform, posts: list[list[Posting]], *, work: Work, probe: bool
    ) -> Failed:
        """Make posts one after another, while the breaker lets them and their leases cover one more.

        If one is refused as a whole, its halves are posted, down to single deliveries, so that a bad notification fails
        alone. If few get through, the others are posted one by one at once.

        An error in our own code ends this, too. It is logged here, because no caller may be waiting. The post that it
        met comes back as unknown when its lease ends; the posts after it were not made.
        """
        failed: Failed = {}
        remaining, is_first, was_refused = deque(posts), True, False
        #: Posts that were refused, more than got through.
        refusals = 0
        while remaining:
            if time.monotonic() > work.until or not (is_first or self.breaker.is_closed(app_platform)):
                if probe and is_first:
                    self.breaker.note(app_platform, [], probe=True)
                break
            post, is_first = remaining.popleft(), False
            self.slots.begin(app_platform)
            try:
                result = work.attempt(post, probe)
            except Exception:
                self.breaker.note(app_platform, [], probe=probe)
                log.exception("post_failed", deliveries=len(post), put_back=len(remaining))
                break
            self.caution.note(app_platform, result.platform_failures, time.monotonic())
            if len(post) == 1 and Failure.GORUSH_REFUSED in result.outcomes:
                self.caution.note_refused(post[0], time.monotonic())
            was_refused = was_refused or bool(result.refused)
            refusals += 1 if result.refused or Failure.GORUSH_REFUSED in result.outcomes else -1
            size = -(-len(result.refused) // 2) if refusals <= MOST_REFUSALS else 1
            remaining.extendleft(reversed([*_in_posts(result.refused, size)]))
            self.breaker.note(app_platform, result.routes, probe=probe)
            failed |= result.failed
        if remaining:
            if was_refused:
                # Together they would be refused again, and again leave no time for posts one by one.
                self.caution.note(app_platform, [Failure.GORUSH_REFUSED], time.monotonic())
            work.put_back(_flat(remaining))
        return failed


def _in_posts(postings: list[Posting], size: int) -> Iterable[list[Posting]]:
    return (postings[start : start + size] for start in range(0, len(postings), size or 1))


def _flat(posts: Iterable[list[Posting]]) -> list[Posting]:
    return [posting for post in posts for posting in post]
