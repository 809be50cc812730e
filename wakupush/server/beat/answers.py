"""The job that publishes answers which their worker did not publish."""

from typing import Final

import structlog

from wakupush.postgres import answers
from wakupush.runtime import metrics
from wakupush.server.beat.beat import Beat

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds after which an answer that could not be published is dropped: no client waits for it any more.
EXPIRY_SECONDS: Final = 600.0
#: Answers that one run publishes at most.
SWEEP_LIMIT: Final = 200
#: Seconds for which a run holds them.
SWEEP_HOLD: Final = 60.0


def publish_overdue(beat: Beat) -> int:
    """Publish answers that their worker did not, and drop those that no client waits for any more; return how many."""
    with beat.pool.connection() as connection:
        expired = answers.expire(connection, EXPIRY_SECONDS)
        overdue = answers.claim(connection, SWEEP_LIMIT, SWEEP_HOLD)
    if expired:
        metrics.ANSWERS_EXPIRED.inc(expired)
        log.warning("answers_expired", answers=expired)
    beat.outbox.publish(overdue)
    return len(overdue)
