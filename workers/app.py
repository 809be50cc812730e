"""The Celery application of the workers: task bodies of a few lines around `wakupush.server`."""

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog
from celery import Celery, Task, signals
from celery.exceptions import Ignore, Reject, Retry
from kombu.exceptions import OperationalError as BrokerError
from redis import RedisError

from wakupush.model.deliveries import DeliveryState, Settlement
from wakupush.model.entries import Entry
from wakupush.model.queues import DELIVER, DISPATCH, FEEDBACK, QUEUES, REST, Queue
from wakupush.redis.celery_app import celery_app
from wakupush.redis.sending import decode_entries, send_entries
from wakupush.runtime import metrics, tracing
from wakupush.runtime.logging import configure
from wakupush.runtime.settings import Settings
from wakupush.server.delivery import next_attempts, webhook
from wakupush.server.delivery.celery_events import AttemptFailed
from wakupush.server.engine import isolation
from wakupush.server.errors import is_outage
from wakupush.server.worker import Worker, open_worker
from wakupush.workers import transport
from wakupush.workers.pulse import Noting

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Seconds that a worker waits, at random, before it gives a batch back because Postgres or Redis failed.
SLOW_DOWN_SECONDS = (0.5, 4.0)


@dataclass
class _Process:
    """A process of the pool: its state from before the fork, and its connections from after it."""

    #: The worker's name in Celery, and the id of its main process.
    node: str | None = None
    main: int = field(default_factory=os.getpid)
    #: What tasks need, opened after the fork.
    worker: Worker = field(init=False)


def create_app(settings: Settings, **log_context: Any) -> Celery:
    """Return the application with all tasks.

    Args:
        log_context: facts that every log line of the worker carries.
    """
    transport.install()
    app = celery_app(settings)
    process = _Process()
    app.steps["consumer"].add(Noting)
    for queue in QUEUES.values():
        _add_queue_task(app, queue, process)
    _add_deliver_task(app, process)
    _add_feedback_task(app, process)
    _connect_signals(settings, log_context, process)
    return app


def _add_queue_task(app: Celery, queue: Queue, process: _Process) -> None:
    @app.task(name=queue.task, bind=True, send_events=False)
    def handle(self: Task[..., None], entries: list[dict[str, Any]], alone: bool = False) -> None:
        messages = decode_entries(entries)
        if not messages:
            return
        is_rest = (self.request.delivery_info or {}).get("routing_key") == REST
        with _given_back(self, queue):
            try:
                isolation.handle(process.worker, queue, messages, alone=alone or _is_redelivered(self), is_rest=is_rest)
            except Exception as error:
                if not is_outage(error):
                    raise
                _send_back(app, queue, messages, error, alone=alone, is_rest=is_rest)


def _add_deliver_task(app: Celery, process: _Process) -> None:
    @app.task(name=DELIVER, bind=True, throws=(AttemptFailed,))
    def deliver(self: Task[..., None], claimed: dict[str, int]) -> None:
        settlement = None
        with _given_back(self, DISPATCH):
            attempts_of = {bytes.fromhex(key): attempts for key, attempts in claimed.items()}
            settlement = next_attempts.attempt_due(process.worker, attempts_of, str(self.request.id))
        _end(settlement)


def _end(settlement: Settlement | None) -> None:
    """End a task as the attempt of the delivery with its id ended: Flower gets the event, and nothing is enqueued.

    Raises:
        Ignore: the outcome is not known yet; the thread that stores it sends the event.
        Retry: the delivery is tried again when beat enqueues it.
        AttemptFailed: the delivery is not tried again.
    """
    if settlement is None:
        raise Ignore
    if settlement.failure is not None:
        error = AttemptFailed(settlement.failure.label)
        if settlement.state is DeliveryState.PENDING:
            raise Retry(exc=error)
        raise error


def _add_feedback_task(app: Celery, process: _Process) -> None:
    @app.task(name=FEEDBACK, bind=True, send_events=False)
    def apply_feedback(self: Task[..., None], delivery_keys: list[str]) -> None:
        with _given_back(self, DISPATCH):
            webhook.apply(process.worker, [bytes.fromhex(key) for key in delivery_keys])


def _send_back(
    app: Celery, queue: Queue, entries: list[Entry], error: Exception, *, alone: bool, is_rest: bool
) -> None:
    """Put a batch back at the end of its queue after a failure of Postgres or Redis: no attempt counts."""
    log.warning("batch_returned", queue=queue.name, messages=len(entries), error=type(error).__name__)
    metrics.TASKS_RETURNED.labels(queue.name, "outage").inc()
    time.sleep(random.uniform(*SLOW_DOWN_SECONDS))
    try:
        send_entries(app, queue, entries, alone=alone, rest=is_rest)
    except (BrokerError, RedisError):
        raise Reject(requeue=True) from None


@contextmanager
def _given_back(task: Task[..., None], queue: Queue) -> Iterator[None]:
    """Give a task that fails back to its queue.

    If it was given back before, only a failure of Postgres or Redis gives it back again. After another one beat or
    reconcile finishes its work.
    """
    try:
        yield
    except Reject:
        raise
    except Exception as error:
        if is_outage(error):
            log.warning("task_returned", queue=queue.name, error=type(error).__name__)
            metrics.TASKS_RETURNED.labels(queue.name, "outage").inc()
        else:
            log.exception("task_failed", queue=queue.name)
            if _is_redelivered(task):
                return
        time.sleep(random.uniform(*SLOW_DOWN_SECONDS))
        raise Reject(requeue=True) from None


def _is_redelivered(task: Task[..., None]) -> bool:
    return bool((task.request.delivery_info or {}).get("redelivered"))


def _connect_signals(settings: Settings, log_context: dict[str, Any], process: _Process) -> None:
    @signals.setup_logging.connect(weak=False)
    def configure_logging(**_: Any) -> None:
        configure(settings, **log_context)

    @signals.celeryd_init.connect(weak=False)
    def remember_node(sender: str, **_: Any) -> None:
        process.node = sender

    @signals.worker_process_init.connect(weak=False)
    def open_resources(**_: Any) -> None:
        try:
            process.worker = open_worker(settings, process.node, process.main)
            tracing.start(settings.tracing, str(log_context["process"]))
        except Exception:
            # Celery would only log it, and the process would fail every task it takes.
            log.exception("process_not_started")
            time.sleep(SLOW_DOWN_SECONDS[0])
            os._exit(1)

    @signals.task_postrun.connect(weak=False)
    def forget_traceback(retval: object, **_: Any) -> None:
        # An exception that ends a task and Celery's frame that caught it hold each other, and 100 kB of positions in
        # code: thousands of retries would pile up before the garbage collector looks at them.
        if isinstance(retval, BaseException):
            retval.__traceback__ = None

    @signals.worker_process_shutdown.connect(weak=False)
    def close_resources(**_: Any) -> None:
        process.worker.close()
        tracing.stop()
