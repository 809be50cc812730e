"""Answers to requests that are not pushed leave as late as others: their time must not show whom a user filters."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from wakupush.model.platforms import Platform
from wakupush.server.delivery.posting import Posting
from wakupush.server.inbox.outcome import Outcome

#: How many of a platform's answers count as recent.
RECENT: Final = 100


class Latencies:
    """For how long answers waited for the posts of a platform lately, in this process.

    Args:
        choose: returns one of several by chance.
    """

    def __init__(self, choose: Callable[[Sequence[float]], float] = random.choice) -> None:
        self._choose = choose
        self._recent: dict[Platform, deque[float]] = {platform: deque(maxlen=RECENT) for platform in Platform}

    def note(self, platforms: Iterable[Platform], seconds: float) -> None:
        """Note that an answer waited for posts of these."""
        for platform in platforms:
            self._recent[platform].append(seconds)

    def draw(self, platform: Platform, most: float) -> float:
        """Return one of the recent waits, or a random one up to `most` seconds if none is known."""
        return self._choose(self._recent[platform] or (random.uniform(0.0, most),))


def delays(
    outcomes: Sequence[Outcome], postings: Collection[Posting], latencies: Latencies, *, within: float, now: float
) -> list[float]:
    """Return the seconds after the commit for which the answer to each message is held back.

    An answer is held back if it reports success without a post: its items are filtered, or pushed already.

    Args:
        outcomes: what was decided.
        postings: what is posted of it.
        latencies: of this process.
        within: seconds after ingest saw a push request within which its answer leaves.
        now: seconds since the epoch.
    """
    posted = {posting.delivery.delivery_key for posting in postings}
    return [_delay(outcome, posted, latencies, within, now) for outcome in outcomes]


def _delay(outcome: Outcome, posted: Collection[bytes], latencies: Latencies, within: float, now: float) -> float:
    if outcome.request is None:
        return 0.0
    items = zip(outcome.request.platforms, outcome.request.delivery_keys, strict=True)
    silent = sorted({platform for platform, key in items if platform is not None and key not in posted})
    if not silent:
        return 0.0
    return min(max(latencies.draw(platform, within) for platform in silent), outcome.entry.seen + within - now)
