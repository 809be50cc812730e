"""The table of what the schedule does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from wakupush.server.schedule.claim_due import claim_due
from wakupush.server.schedule.count_dead_letters import count_dead_letters
from wakupush.server.schedule.derive_keys import derive_keys
from wakupush.server.schedule.enqueue_feedback import enqueue_feedback
from wakupush.server.schedule.enqueue_waiting import enqueue_waiting
from wakupush.server.schedule.expire_segments import expire_segments
from wakupush.server.schedule.fill_watched_topics import fill_watched_topics
from wakupush.server.schedule.prune import prune
from wakupush.server.schedule.publish_overdue import publish_overdue
from wakupush.server.schedule.resources import ScheduleResources
from wakupush.server.schedule.trim_quarantine import trim_quarantine
from wakupush.server.schedule.trim_waiting import trim_waiting
from wakupush.server.schedule.watch_marking import watch_marking

#: What is done, and the seconds between the end of one run and the next.
JOBS: Final[dict[Callable[[ScheduleResources], object], float]] = {
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
    prune: 3600.0,
}
