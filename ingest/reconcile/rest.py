"""When walks rest: while a queue is behind, claims lapse, and what still waits there would be enqueued again."""

import math
import time
from dataclasses import dataclass, field, replace
from threading import Lock

import structlog
from redis import Redis

from wakupush.model.queues import REST, REST_WORKER, Queue
from wakupush.redis import backlog, presence
from wakupush.redis.backlog import QueueBacklog
from wakupush.runtime import metrics

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Age in seconds of a queue's oldest message above which walks add nothing to it: a backlog is not a loss.
BACKLOG_AGE = 60.0
#: Seconds between looks at the backlog.
LOOK_SECONDS = 0.5


@dataclass(slots=True)
class Rest:
    """Knows which queues are behind, so that the walks for these rest, and no others."""

    redis: Redis
    #: Seconds; see `BACKLOG_AGE`.
    most_age: float = BACKLOG_AGE
    _lock: Lock = field(default_factory=Lock)
    _looked_at: float = -math.inf
    #: Whether a look was ever finished; before that every caller looks.
    _knows: bool = False
    #: By the name of a queue that is behind: since when, in seconds since the epoch.
    _since: dict[str, float] = field(default_factory=dict)

    def is_due(self, queue: Queue) -> bool:
        """Return whether the oldest message of a queue, or of the queue `rest`, has waited too long.

        This is as of the last finished look. Messages of every kind wait in `rest`; without a worker of that pool they
        are lost.

        Raises:
            RedisError: this is not known.
        """
        with self._lock:
            looks = not self._knows or time.monotonic() - self._looked_at >= LOOK_SECONDS
            if looks:
                self._looked_at = time.monotonic()
        if looks:  # without the lock: if Redis hangs, walks would wait for each other
            sizes = backlog.look(self.redis)
            if not presence.is_ready(self.redis, REST_WORKER):
                sizes[REST] = replace(sizes[REST], oldest=None)
            with self._lock:
                for name, queue_backlog in sizes.items():
                    self._note(name, queue_backlog)
                self._knows = True
        return not self._since.keys().isdisjoint({queue.name, REST})

    def _note(self, name: str, queue_backlog: QueueBacklog) -> None:
        is_late = queue_backlog.oldest is not None and time.time() - queue_backlog.oldest > self.most_age
        if is_late and name not in self._since:
            self._since[name] = time.time()
            metrics.RECONCILE_RESTS.labels(name).inc()
            log.warning("resting", queue=name, most_age=self.most_age)
        elif not is_late and name in self._since:
            log.warning("rested", queue=name, seconds=round(time.time() - self._since.pop(name), 1))
        metrics.RECONCILE_RESTING.labels(name).set(is_late)
