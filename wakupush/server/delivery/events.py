"""Events of deliveries, and counting what was committed."""

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import TypeAlias

import structlog
from prometheus_client import Histogram

from wakupush.model.deliveries import Delivery, Settlement
from wakupush.model.events import Event, EventKind, history, period_of
from wakupush.model.failures import Failure
from wakupush.model.queues import DISPATCH
from wakupush.runtime import metrics, tracing
from wakupush.server.delivery.sender import Sender

#: A histogram, and the values of its labels.
_Series: TypeAlias = tuple[Histogram, tuple[str, ...]]

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


def count_events(committed: Collection[Event]) -> None:
    """Count committed events and all that they stand for, each with its count.

    Each is also logged at DEBUG, and recorded as a span since ingest saw its message, if either is switched on.
    """
    numbers: Counter[tuple[str, str, str, str, str]] = Counter()
    seconds: defaultdict[_Series, list[float]] = defaultdict(list)
    for event in committed:
        for kind in history(event):
            numbers[_labels(event, kind)] += event.count
        if event.queue_wait is not None:
            seconds[metrics.QUEUE_WAIT, (event.queue or "",)].extend([event.queue_wait] * event.count)
        if event.latency is not None and (series := _latency_series(event)):
            seconds[series].append(event.latency)
    for (histogram, series_labels), observations in seconds.items():
        metrics.observe(histogram, series_labels, observations)
    for labels, number in numbers.items():
        metrics.EVENTS.labels(*labels).inc(number)
    if tracing.is_on() or log.is_enabled_for(logging.DEBUG):
        for event in committed:
            _show(event)


def delivery_event(
    sender: Sender,
    delivery: Delivery,
    kind: EventKind,
    failure: Failure | None,
    batch_size: int | None = None,
) -> Event:
    """Return an event of a delivery."""
    now = sender.now()
    period = period_of(now, sender.settings.pipeline.pseudonym_days)
    key_pseudonym, installation_pseudonym = sender.identity.pseudonyms(delivery.installation, period)
    return Event(
        kind=kind,
        time=now,
        worker=sender.worker,
        trace_id=delivery.trace_id,
        queue=DISPATCH.name,
        latency=max(0.0, now - delivery.seen),
        app=delivery.app or None,
        platform=delivery.platform.label,
        push_type=delivery.notification_type.label,
        failure=failure and failure.label,
        attempt=delivery.attempt,
        batch_size=batch_size,
        key_pseudonym=key_pseudonym,
        installation_pseudonym=installation_pseudonym,
    )


def death_events(sender: Sender, died: Iterable[Settlement]) -> list[Event]:
    """Return the events of device tokens that died by these settlements."""
    return [
        delivery_event(sender, settlement.delivery, EventKind.TOKEN_DIED, settlement.failure) for settlement in died
    ]


def failure_kind(failure: Failure) -> EventKind:
    """Return the kind of event for an attempt that failed with `failure`."""
    return EventKind.UNKNOWN if failure.unknown else EventKind.FAILED


def _latency_series(event: Event) -> _Series | None:
    """Return the series of a delivery, or of a request that expired unanswered; follow-ups note other answers."""
    if event.kind is EventKind.DELIVERED:
        return metrics.DELIVERY_SECONDS, (event.app or "", event.platform or "")
    if event.kind is EventKind.EXPIRED and event.platform is None:
        return metrics.ANSWER_SECONDS, (event.queue or "",)
    return None


def _labels(event: Event, kind: EventKind) -> tuple[str, str, str, str, str]:
    """Return the labels of a kind that an event stands for: kind, queue, app, platform and failure."""
    if kind is event.kind or kind is EventKind.ATTEMPT:
        return kind, event.queue or "", event.app or "", event.platform or "", event.failure or ""
    return kind, event.queue or "", "", "", ""


def _show(event: Event) -> None:
    for kind in history(event):
        _, queue, app, platform, failure = _labels(event, kind)
        facts: tracing.Attributes = {
            "queue": queue or None,
            "app": app or None,
            "platform": platform or None,
            "failure": failure or None,
            "reason": event.reason,
            "attempt": event.attempt,
            "count": event.count,
        }
        log.debug("event", trace_id=event.trace_id, kind=kind.value, **facts)
        if event.trace_id is not None:
            tracing.record(kind.value, event.trace_id, event.time - (event.latency or 0.0), event.time, facts)
