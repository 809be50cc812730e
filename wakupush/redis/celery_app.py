"""The Celery application that all processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from celery import Celery
from kombu import Queue as KombuQueue

from wakupush.model.queues import DISPATCH, QUEUES

if TYPE_CHECKING:
    from wakupush.runtime.settings import Settings

#: One value for every process on the broker (the shortest one would win), above every hard time limit.
VISIBILITY_TIMEOUT_SECONDS: Final = 120
#: Seconds after which a task is interrupted, and after which its process is killed.
SOFT_TIME_LIMIT_SECONDS: Final = 60
TIME_LIMIT_SECONDS: Final = 90


def _tls(settings: Settings) -> dict[str, str] | None:
    # kombu trusts every certificate unless it is told otherwise; what the URL says about them comes before this.
    is_tls = settings.redis.url.get_secret_value().startswith("rediss:")
    return {"ssl_cert_reqs": "required"} if is_tls else None


def celery_app(settings: Settings) -> Celery:
    """Return a Celery application that can send every task and runs none yet."""
    app = Celery("wakupush", broker=settings.redis.url.get_secret_value(), set_as_current=False)
    app.conf.update(
        # A batch is acknowledged when its effects are committed, and comes back when its process dies in between:
        # attempts are counted in Postgres, so that it does not come back for ever.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_acks_on_timeout=False,
        task_soft_time_limit=SOFT_TIME_LIMIT_SECONDS,
        task_time_limit=TIME_LIMIT_SECONDS,
        worker_prefetch_multiplier=1,
        task_ignore_result=True,
        task_store_errors_even_if_ignored=False,
        task_serializer="json",
        accept_content=["json"],
        task_queues=[KombuQueue(name) for name in QUEUES],
        task_default_queue=DISPATCH.name,
        task_create_missing_queues=False,
        task_send_sent_event=True,
        worker_send_task_events=True,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # What a Redis answers that is full, read-only or cannot save is an error of the channel to kombu. Without this
        # it ends the worker.
        broker_channel_error_retry=True,
        broker_connection_timeout=settings.redis.timeout,
        broker_use_ssl=_tls(settings),
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_SECONDS,
            "unacked_restore_interval": 10,
            "unacked_restore_throttle": 1,
            "socket_timeout": 15,
            "socket_connect_timeout": settings.redis.timeout,
            "socket_keepalive": True,
            "health_check_interval": 25,
        },
    )
    return app
