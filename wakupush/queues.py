"""The queues, the tasks, what travels in them, and the Celery configuration that all processes share."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from celery import Celery
from kombu import Queue as KombuQueue

from wakupush.protocol.waku_message import WakuMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wakupush.settings import Settings

#: One value for every process on the broker (the shortest one would win), above every hard time limit.
VISIBILITY_TIMEOUT_SECONDS: Final = 120
#: Seconds after which a task is interrupted, and after which its process is killed.
SOFT_TIME_LIMIT_SECONDS: Final = 60
TIME_LIMIT_SECONDS: Final = 90


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue, the pool of workers that has its name, and the task that its messages arrive in."""

    name: str
    #: Name of the Celery task that takes a batch of entries.
    task: str


REGISTRATION: Final = Queue("registration", "wakupush.registration")
QUERY: Final = Queue("query", "wakupush.query")
DISPATCH: Final = Queue("dispatch", "wakupush.dispatch")
QUEUES: Final = {queue.name: queue for queue in (REGISTRATION, QUERY, DISPATCH)}

#: The task of the next attempt of deliveries that failed in passing, on the dispatch queue.
DELIVER: Final = "wakupush.deliver"
#: The task of what gorush's webhook told of deliveries that had read as delivered, on the dispatch queue.
FEEDBACK: Final = "wakupush.feedback"


@dataclass(frozen=True, slots=True)
class Entry:
    """A message on its way through a queue, as the ciphertext that it arrived as."""

    #: The shard that it came from, and that its answer goes to.
    pubsub_topic: str
    #: 14/WAKU2-MESSAGE deterministic hash, 32 bytes.
    hash: bytes
    #: When ingest first saw it, in seconds since the epoch; of one out of a Store, its sender's time unless it is not
    #: over yet.
    seen: float
    message: WakuMessage

    @property
    def trace_id(self) -> str:
        """The name of this message in logs and events, the same from ingest to gorush."""
        return self.hash[:8].hex()


def encode_entry(entry: Entry) -> dict[str, Any]:
    """Return an entry as JSON can hold it."""
    return {
        "pubsub_topic": entry.pubsub_topic,
        "hash": entry.hash.hex(),
        "seen": entry.seen,
        "payload": base64.b64encode(entry.message.payload).decode(),
        "content_topic": entry.message.content_topic,
        "version": entry.message.version,
        "timestamp": entry.message.timestamp,
        "meta": base64.b64encode(entry.message.meta).decode(),
        "ephemeral": entry.message.ephemeral,
    }


def decode_entry(value: dict[str, Any]) -> Entry:
    """Return the entry that `encode_entry` encoded."""
    return Entry(
        pubsub_topic=value["pubsub_topic"],
        hash=bytes.fromhex(value["hash"]),
        seen=value["seen"],
        message=WakuMessage(
            payload=base64.b64decode(value["payload"]),
            content_topic=value["content_topic"],
            version=value["version"],
            timestamp=value["timestamp"],
            meta=base64.b64decode(value["meta"]),
            ephemeral=value["ephemeral"],
        ),
    )


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


def send_entries(
    app: Celery,
    queue: Queue,
    entries: Sequence[Entry],
    *,
    alone: bool = False,
    waits_since: float | None = None,
    **options: Any,
) -> None:
    """Enqueue messages as one task.

    The headers say how many and how old they are, so that whoever looks at the queue need not open the bodies.

    Args:
        app: see `celery_app`.
        queue: where to.
        entries: at least one.
        alone: whether each is to be handled on its own because it, or a neighbour, failed before.
        waits_since: when they were claimed, in seconds since the epoch; when the oldest was seen, unless given. What
            comes out of a Store was seen long before it waits in a queue.
        options: of `Celery.send_task`, for example its connection.
    """
    oldest = min(entry.seen for entry in entries)
    app.send_task(
        queue.task,
        args=[[encode_entry(entry) for entry in entries]],
        kwargs={"alone": True} if alone else {},
        queue=queue.name,
        headers={"messages": len(entries), "seen": oldest if waits_since is None else waits_since},
        argsrepr=f"({len(entries)} messages)",
        kwargsrepr="alone" if alone else "",
        **options,
    )
