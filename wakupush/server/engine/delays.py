"""Answers to requests that are not pushed leave as late as others: their time must not show whom a user filters."""

from collections.abc import Collection, Sequence

from wakupush.server.delivery.posting import Posting
from wakupush.server.engine.background import Latencies
from wakupush.server.engine.outcome import Outcome


def delays(
    outcomes: Sequence[Outcome], postings: Collection[Posting], latencies: Latencies, *, within: float, now: float
) -> list[float]:
    """Return the seconds after the commit for which the answer to each message is held back.

    An answer is held back if it reports success without a post: its items are filtered, or pushed already.

    Args:
        within: seconds after ingest saw a push request within which its answer leaves.
        now: seconds since the epoch.
    """
    posted_keys = {posting.delivery.delivery_key for posting in postings}
    return [_delay(outcome, posted_keys, latencies, within, now) for outcome in outcomes]


def _delay(outcome: Outcome, posted_keys: Collection[bytes], latencies: Latencies, within: float, now: float) -> float:
    silent = sorted({push.app_platform for push in outcome.pushes if push.delivery_key not in posted_keys})
    if not silent:
        return 0.0
    return min(max(latencies.draw(app_platform, within) for app_platform in silent), outcome.entry.seen + within - now)
