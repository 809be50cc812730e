"""Celery events of deliveries, so that Flower shows each retry under the id of its delivery.

To Flower a delivery is one task, however many deliveries a Celery task carries. Celery itself sends the events of the
delivery whose id its task has. This module sends those of the others, and those of what happens outside of a task: see
docs/operating/watch.md. They are best effort, as all events of Celery; the reliable record is `delivery_events`.
"""

import time
from collections.abc import Iterable
from threading import Lock
from typing import Any

import structlog
from celery import Celery
from celery.events import EventDispatcher
from kombu.exceptions import KombuError
from redis import RedisError

from wakupush.model.deliveries import Delivery, DeliveryState, Settlement, attempt_argument
from wakupush.model.failures import Failure
from wakupush.model.queues import DELIVER
from wakupush.runtime import metrics
from wakupush.server.delivery.posting import Posting

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds to wait for a connection, because a post waits behind it; and seconds without another try after a failure.
CONNECT_SECONDS = 1.0
REST_SECONDS = 5.0
#: Name and fields of an event.
TaskEvent = tuple[str, dict[str, Any]]


class AttemptFailed(Exception):
    """What Flower shows of an attempt that failed: the label of the failure."""


class TaskEvents:
    """Sends events as the worker that this process belongs to. Threads may share it.

    Args:
        node: the worker's name in Celery.
        most: attempts of a delivery.
    """

    def __init__(self, app: Celery, node: str | None, most: int) -> None:
        self._app = app
        self._node = node
        self._most = most
        self._lock = Lock()
        self._dispatcher: EventDispatcher | None = None
        #: Monotonic seconds.
        self._rests_until = 0.0

    def _beginning(self, delivery: Delivery) -> list[TaskEvent]:
        args = attempt_argument(delivery.attempt, self._most, 1, delivery.app_platform, delivery.failure)
        fields = {"name": DELIVER, "args": args, "kwargs": "", "retries": delivery.attempt - 1, "eta": None}
        return [("task-received", {"uuid": delivery.task_id, **fields}), _started(delivery)]

    def report_beginnings(self, postings: Iterable[Posting]) -> None:
        """Report that due attempts begin, and which of those before them were lost: these are counted as retries, too.

        Celery reports the beginning of its task alone.
        """
        new_events = []
        for posting in postings:
            delivery = posting.delivery
            is_lost = delivery.failure is Failure.LEASE_LOST
            if is_lost:
                metrics.RETRIES.labels(*delivery.app_platform.labels, Failure.LEASE_LOST.label).inc()
                new_events.append(_failed("task-retried", delivery, Failure.LEASE_LOST))
            if not posting.reporter.by_task:
                new_events += self._beginning(delivery)
            elif is_lost:
                new_events.append(_started(delivery))
        self.send(new_events)

    def report_outcomes(self, postings: Iterable[Posting], settlements: Iterable[Settlement]) -> None:
        """Report the outcomes of attempts, unless the task that has the delivery's id does so."""
        by_key = {posting.delivery.delivery_key: posting for posting in postings}
        new_events = []
        for settlement in settlements:
            reporter = by_key[settlement.delivery.delivery_key].reporter
            is_pending = settlement.state is DeliveryState.PENDING
            if reporter.hand_over(settlement) or not (reporter.from_beginning or is_pending):
                continue
            if not reporter.from_beginning:
                new_events += self._beginning(settlement.delivery)
            new_events.append(_outcome(settlement))
        self.send(new_events)

    def report_deferred(self, postings: Iterable[Posting]) -> None:
        """Report that due deliveries were not attempted; the state is not one of Celery's own."""
        deferred = [posting.delivery for posting in postings if posting.reporter.from_beginning]
        self.send([("task-deferred", {"uuid": delivery.task_id}) for delivery in deferred])

    def send(self, events: list[TaskEvent]) -> None:
        """Send events in their order, as one message; without Redis they are lost, and that is counted."""
        if not events:
            return
        with self._lock:
            if time.monotonic() < self._rests_until:
                metrics.TASK_EVENTS_LOST.inc(len(events))
                return
            try:
                dispatcher = self._dispatcher = self._dispatcher or self._open()
                for kind, fields in events:
                    dispatcher.send(kind, **fields)
                dispatcher.flush(errors=False)
            except (RedisError, KombuError, OSError) as error:
                metrics.TASK_EVENTS_LOST.inc(len(events))
                log.warning("task_events_lost", events=len(events), error=type(error).__name__)
                self._rests_until = time.monotonic() + REST_SECONDS
                self._close()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._close()

    def _open(self) -> EventDispatcher:
        dispatcher: EventDispatcher = self._app.events.Dispatcher(
            self._app.connection_for_write(connect_timeout=CONNECT_SECONDS),
            hostname=self._node,
            buffer_while_offline=False,
            # What `send` is given leaves with one command.
            buffer_group={"task"},
            buffer_limit=float("inf"),
        )
        return dispatcher

    def _close(self) -> None:
        """Forget the dispatcher, and with it what it has not sent."""
        if self._dispatcher is not None:
            self._dispatcher.close()
            if self._dispatcher.connection is not None:
                self._dispatcher.connection.release()
            self._dispatcher = None


def _started(delivery: Delivery) -> TaskEvent:
    return "task-started", {"uuid": delivery.task_id}


def _outcome(settlement: Settlement) -> TaskEvent:
    delivery, failure = settlement.delivery, settlement.failure
    if failure is None:
        return "task-succeeded", {"uuid": delivery.task_id, "result": settlement.state.value, "runtime": None}
    return _failed("task-retried" if settlement.state is DeliveryState.PENDING else "task-failed", delivery, failure)


def _failed(kind: str, delivery: Delivery, failure: Failure) -> TaskEvent:
    return kind, {"uuid": delivery.task_id, "exception": repr(AttemptFailed(failure.label)), "traceback": ""}
