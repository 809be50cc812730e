"""The Celery application that all processes share."""

from typing import Any, Final
from urllib.parse import urlsplit

from celery import Celery
from kombu import Queue as KombuQueue

from wakupush.model.queues import DISPATCH, POOLS
from wakupush.runtime.connections.redis import follow, primary_name, sentinel_options, tls_options
from wakupush.runtime.settings import Settings

#: One value for every process on the broker (the shortest one would win), above every hard time limit.
VISIBILITY_TIMEOUT_SECONDS: Final = 120
#: Seconds after which Celery interrupts a task, and after which it kills its process.
SOFT_TIME_LIMIT_SECONDS: Final = 60
TIME_LIMIT_SECONDS: Final = 90


#: Seconds without an answer of Redis, while a worker waits for a task, after which its connection is given up: a
#: primary that fell silent closes none. This is noticed within twice this time and one second.
SILENT_SECONDS: Final = 5


def _broker(settings: Settings) -> str:
    """Return the URL as kombu wants it: with Sentinels each of them, with the user and database of the primary."""
    url = settings.redis.url.get_secret_value()
    if not settings.redis.sentinels:
        return url
    parts = urlsplit(url)
    user = "".join(parts.netloc.rpartition("@")[:2])
    return ";".join(f"sentinel://{user}{address}{parts.path}" for address in settings.redis.sentinels)


def _tls(settings: Settings) -> dict[str, Any] | None:
    # By default kombu trusts every certificate. The options of a rediss: URL override this.
    options = tls_options(settings.redis)
    options.pop("ssl", None)
    return options or None


def _sentinel(settings: Settings) -> dict[str, Any]:
    if not settings.redis.sentinels:
        return {}
    return {
        "master_name": primary_name(settings.redis),
        "min_other_sentinels": settings.redis.min_other_sentinels,
        "sentinel_kwargs": sentinel_options(settings.redis),
    }


def celery_app(settings: Settings) -> Celery:
    """Return a Celery application that can send every task and runs none yet."""
    follow(settings.redis)
    app = Celery("wakupush", broker=_broker(settings), set_as_current=False)
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
        task_queues=[KombuQueue(name) for name in POOLS],
        task_default_queue=DISPATCH.name,
        task_create_missing_queues=False,
        # Deliveries have events, see `wakupush.server.delivery.celery_events`; batches of messages have none.
        worker_send_task_events=True,
        # Whoever can publish in Redis could stop all workers.
        worker_enable_remote_control=False,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        # The answer of a Redis that is full, read-only or cannot save is a channel error to kombu. Without this setting
        # such an error ends the worker.
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
            "health_check_interval": SILENT_SECONDS,
            **_sentinel(settings),
        },
    )
    return app
