"""The Celery application of the workers: task bodies of a few lines around `wakupush.server`."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog
from celery import Task, signals
from celery.exceptions import Reject
from prometheus_client import multiprocess

from wakupush import metrics, queues
from wakupush.logging import configure
from wakupush.queues import DISPATCH, QUEUES, celery_app, decode_entry
from wakupush.server import deliveries, handling, publishing, schedule
from wakupush.server.context import Context
from wakupush.server.faults import INFRASTRUCTURE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from celery import Celery

    from wakupush.queues import Queue
    from wakupush.settings import Settings

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds that a worker waits, at random, before it gives a batch back because Postgres or Redis failed.
SLOW_DOWN_SECONDS = (0.5, 4.0)

#: The schedule: for each of its tasks what it calls, and the seconds between two runs.
SCHEDULE: dict[str, tuple[Callable[[Context], object], float]] = {
    queues.CLAIM_DELIVERIES: (deliveries.claim_due, 1.0),
    queues.PUBLISH_ANSWERS: (publishing.publish_overdue, 5.0),
    queues.FILL_WATCHED_TOPICS: (schedule.fill_watched_topics, 2.0),
    queues.PRUNE: (schedule.prune, 3600.0),
}


class _Process:
    """What a worker process opened after its fork."""

    context: Context


def create_app(settings: Settings, **log_context: Any) -> Celery:
    """Return the application with all tasks and the schedule.

    Args:
        settings: of this worker.
        log_context: facts that every log line of the worker carries.
    """
    app = celery_app(settings)
    for queue in QUEUES.values():
        _add_queue_task(app, queue)
    _add_deliver_task(app)
    for name, (work, _) in SCHEDULE.items():
        _add_scheduled_task(app, name, work)
    app.conf.beat_schedule = {
        name: {"task": name, "schedule": seconds, "options": {"queue": DISPATCH.name, "expires": seconds}}
        for name, (_, seconds) in SCHEDULE.items()
    }
    _connect_signals(settings, log_context)
    return app


def _add_queue_task(app: Celery, queue: Queue) -> None:
    @app.task(name=queue.task, bind=True)
    def handle(self: Task[..., None], entries: list[dict[str, Any]], alone: bool = False) -> None:
        redelivered = bool((self.request.delivery_info or {}).get("redelivered"))
        with _given_back_on_outage(queue.name):
            messages = [decode_entry(entry) for entry in entries]
            handling.handle(_Process.context, queue, messages, alone=alone or redelivered)


def _add_deliver_task(app: Celery) -> None:
    @app.task(name=queues.DELIVER)
    def deliver(delivery_keys: list[str], attempt: int) -> None:
        with _given_back_on_outage(DISPATCH.name):
            deliveries.deliver(_Process.context, [bytes.fromhex(key) for key in delivery_keys], attempt)


def _add_scheduled_task(app: Celery, name: str, work: Callable[[Context], object]) -> None:
    @app.task(name=name)
    def scheduled() -> None:
        try:
            work(_Process.context)
        except INFRASTRUCTURE as error:
            log.warning("scheduled_task_failed", task=name, error=type(error).__name__)


@contextmanager
def _given_back_on_outage(queue: str) -> Iterator[None]:
    """Give the task back to its queue, after a pause, where Postgres or Redis failed."""
    try:
        yield
    except INFRASTRUCTURE as error:
        log.warning("task_returned", queue=queue, error=type(error).__name__)
        metrics.TASKS_RETURNED.labels(queue, "outage").inc()
        time.sleep(random.uniform(*SLOW_DOWN_SECONDS))
        raise Reject(requeue=True) from None
    except Exception:
        # A fault of ours; what it cuts off, the schedule or reconcile makes up for.
        log.exception("task_failed", queue=queue)


def _connect_signals(settings: Settings, log_context: dict[str, Any]) -> None:
    @signals.setup_logging.connect(weak=False)
    def configure_logging(**_: Any) -> None:
        configure(settings, **log_context)

    @signals.worker_process_init.connect(weak=False)
    def open_context(**_: Any) -> None:
        _Process.context = Context.open(settings)

    @signals.worker_process_shutdown.connect(weak=False)
    def close_context(pid: int, **_: Any) -> None:
        _Process.context.close()
        if settings.worker.http_port >= 0:
            multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]  # prometheus_client has no types there
