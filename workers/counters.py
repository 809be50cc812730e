"""Which counters and histograms workers and beat begin at 0."""

from collections.abc import Iterator, Sequence
from itertools import product

from wakupush.model import limits
from wakupush.model.events import EventKind
from wakupush.model.failures import OF_DELIVERIES, Failure, Retry
from wakupush.model.queues import DISPATCH, QUEUES, Queue
from wakupush.runtime import metrics
from wakupush.runtime.counters import Series
from wakupush.runtime.settings import Settings
from wakupush.server.beat.jobs import JOBS
from wakupush.server.delivery.apps import app_platforms
from wakupush.server.delivery.events import failure_kind


def of_publishing(settings: Settings) -> Series:
    """Return the series of publishing answers, for the workers and beat."""
    return {
        metrics.ANSWERS_FAILED: product(("refused", "unreachable")),
        metrics.PUBLICATIONS: product(
            settings.waku.nodes, ("taken", "refused", "unreachable", "not_published", "late")
        ),
    }


def of_worker(queue: Queue, settings: Settings) -> Series:
    """Return the series of the pool of a queue."""
    handling: Series = {
        metrics.TASKS_RETURNED: product((queue.name,), ("outage", "message")),
        metrics.QUARANTINED: product((queue.name,)),
        metrics.MESSAGES_TO_REST: product(QUEUES),
        metrics.MESSAGES_DROPPED: [("rest_full",)],
        metrics.LIMITED: product(limits.NAMES, ("let_through", "held_back")),
        metrics.ANSWER_SECONDS: product((queue.name,)),
    }
    if queue is not DISPATCH:
        return handling
    platform_labels = [one.labels for one in app_platforms(settings)]
    again = [failure.label for failure in OF_DELIVERIES if failure.retry is not Retry.NEVER]
    return {
        **handling,
        metrics.EVENTS: _delivery_events(platform_labels),
        metrics.DELIVERY_SECONDS: platform_labels,
        metrics.RETRIES: [(*labels, failure) for labels in platform_labels for failure in again],
        metrics.DELIVERIES_DEFERRED: platform_labels,
        metrics.BREAKER_OPENED: platform_labels,
    }


def of_beat() -> Series:
    """Return the series of `wakupush beat`."""
    return {
        metrics.ANSWER_SECONDS: product(("",)),
        metrics.QUERIES_DROPPED: product(("expired", "full")),
        metrics.JOBS_FAILED: product(work.__name__ for work in JOBS),
    }


def _delivery_events(platform_labels: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, str, str, str]]:
    for labels in platform_labels:
        yield EventKind.ADMITTED, DISPATCH.name, *labels, ""
        yield EventKind.ATTEMPT, DISPATCH.name, *labels, ""
        yield EventKind.DELIVERED, DISPATCH.name, *labels, ""
        yield EventKind.EXPIRED, DISPATCH.name, *labels, Failure.DELIVERY_EXPIRED.label
        for failure in OF_DELIVERIES:
            kinds = [EventKind.ATTEMPT, failure_kind(failure)]
            if failure.retry is not Retry.NEVER or failure is Failure.ATTEMPTS_EXHAUSTED:
                kinds.append(EventKind.DEAD_LETTER)
            for kind in kinds:
                yield kind, DISPATCH.name, *labels, failure.label
