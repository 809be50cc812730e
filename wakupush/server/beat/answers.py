"""The job that publishes answers which their worker did not publish."""

import time
from collections import Counter
from typing import Final

import structlog

from wakupush.postgres import answers
from wakupush.runtime import metrics
from wakupush.server.beat.beat import Beat

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds after which an answer that could not be published is dropped: no client waits for it any more.
EXPIRY_SECONDS: Final = 600.0
#: Answers of a shard that one run drops at most.
EXPIRY_LIMIT: Final = 10_000
#: Answers of a shard that the first run publishes at most, and the least and the most that later ones do.
FIRST_LIMIT: Final = 200
LEAST_LIMIT: Final = 10
MOST_LIMIT: Final = 2000
#: Bytes of the answers of one run at most.
SWEEP_BYTES: Final = 16 * 1024 * 1024
#: Seconds for which a run holds them.
SWEEP_HOLD: Final = 60.0
#: Seconds within which a run must have published its answers for the next one to publish more, and from which on the
#: next one publishes fewer: long runs would end in a restart, and other processes would publish the same.
QUICK_SECONDS: Final = 1.0
SLOW_SECONDS: Final = 20.0


def publish_overdue(beat: Beat) -> int:
    """Publish answers that their worker did not, and drop those that no client waits for any more; return how many.

    The newest come first. While the nodes take all answers of a shard quickly, each run publishes twice as many of
    them; if they do not take one, or take long, a quarter.
    """
    limits = beat.outbox.limits
    with beat.pool.connection() as connection:
        expired = answers.expire(connection, EXPIRY_SECONDS, EXPIRY_LIMIT)
        overdue = answers.claim(connection, limits, FIRST_LIMIT, most_bytes=SWEEP_BYTES, hold=SWEEP_HOLD)
    if expired:
        metrics.observe(metrics.ANSWER_SECONDS, [""], [EXPIRY_SECONDS] * expired)
        metrics.ANSWERS_EXPIRED.inc(expired)
        log.warning("answers_expired", answers=expired)
    beginning = time.monotonic()
    published, unpublished = beat.outbox.publish([(answer_id, answer) for answer_id, answer, _ in overdue])
    beat.outbox.postpone(unpublished)
    took = time.monotonic() - beginning
    ages = {answer: age for _, answer, age in overdue}
    metrics.observe(metrics.ANSWER_SECONDS, [""], [ages[answer] + took for answer in published])
    published_counts = Counter(answer.pubsub_topic for answer in published)
    is_quick = took < QUICK_SECONDS
    for shard, count in Counter(answer.pubsub_topic for _, answer, _ in overdue).items():
        limit = limits.get(shard, FIRST_LIMIT)
        if published_counts[shard] < count or took > SLOW_SECONDS:
            limits[shard] = max(LEAST_LIMIT, limit // 4)
        elif count == limit and is_quick:
            limits[shard] = min(MOST_LIMIT, limit * 2)
    return len(overdue)
