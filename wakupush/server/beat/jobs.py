"""The table of what beat does."""

from collections.abc import Callable
from typing import Final

from wakupush.server.beat.answers import publish_overdue
from wakupush.server.beat.beat import Beat
from wakupush.server.beat.deliveries import claim_due, count_dead_letters, enqueue_feedback, watch_marking
from wakupush.server.beat.queries import derive_keys, enqueue_waiting, fill_watched_topics, trim_waiting
from wakupush.server.beat.retention import expire_segments, forget_processes, prune, trim_quarantine

#: What is done, and the seconds between the end of one run and the next.
JOBS: Final[dict[Callable[[Beat], object], float]] = {
    claim_due: 0.1,
    derive_keys: 0.1,
    enqueue_waiting: 0.1,
    publish_overdue: 1.0,
    fill_watched_topics: 1.0,
    enqueue_feedback: 1.0,
    trim_waiting: 1.0,
    expire_segments: 5.0,
    trim_quarantine: 5.0,
    watch_marking: 60.0,
    count_dead_letters: 60.0,
    forget_processes: 60.0,
    prune: 3600.0,
}
