"""Counting what was committed."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import structlog

from wakupush.runtime import metrics, tracing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wakupush.model.events import Event

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def count_events(committed: Iterable[Event]) -> None:
    """Count events that were committed, log each at DEBUG, and record it as a span since ingest saw its message.

    An event that stands for several counts as so many.
    """
    numbers: Counter[tuple[str, str, str, str]] = Counter()
    waits: defaultdict[str, list[float]] = defaultdict(list)
    for event in committed:
        facts: tracing.Attributes = {
            "queue": event.queue,
            "platform": event.platform,
            "failure": event.failure,
            "reason": event.reason,
            "attempt": event.attempt,
            "count": event.count,
        }
        log.debug("event", trace_id=event.trace_id, kind=event.kind.value, **facts)
        if event.trace_id is not None:
            tracing.record(event.kind.value, event.trace_id, event.time - (event.latency or 0.0), event.time, facts)
        numbers[event.kind, event.queue or "", event.platform or "", event.failure or ""] += event.count
        if event.queue_wait is not None:
            waits[event.queue or ""].extend([event.queue_wait] * event.count)
    for queue, seconds in waits.items():
        histogram = metrics.QUEUE_WAIT.labels(queue)
        for each in seconds:
            histogram.observe(each)
    for labels, number in numbers.items():
        metrics.EVENTS.labels(*labels).inc(number)
