"""Messages into a queue, as one task."""

import base64
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import structlog
from celery import Celery

from wakupush.model.entries import Entry
from wakupush.model.queues import REST, Queue
from wakupush.model.waku_message import WakuMessage
from wakupush.protocol.hashing import message_hash

log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)

#: Bytes of messages in one task at most: a worker of two processes holds two, and all that it makes of them.
TASK_BYTES: Final = 2**20
#: Bytes of an entry in Redis without what is in base64, and of a task that carries it alone.
_OVERHEAD_BYTES: Final = 1500


def encode_entry(entry: Entry) -> dict[str, Any]:
    """Return the fields of an entry as JSON can hold them; of the message, those that its hash covers."""
    return {
        "pubsub_topic": entry.pubsub_topic,
        "hash": entry.hash.hex(),
        "seen": entry.seen,
        "payload": base64.b64encode(entry.message.payload).decode(),
        "content_topic": entry.message.content_topic,
        "timestamp": entry.message.timestamp,
        "meta": base64.b64encode(entry.message.meta).decode(),
        "live": entry.live,
        **({"deferred": True} if entry.deferred else {}),
        **({"opened": base64.b64encode(entry.opened).decode()} if entry.opened else {}),
    }


def decode_entry(value: dict[str, Any]) -> Entry:
    """Return the entry that `encode_entry` encoded; the other fields of the message have their defaults."""
    return Entry(
        pubsub_topic=value["pubsub_topic"],
        hash=bytes.fromhex(value["hash"]),
        seen=value["seen"],
        message=WakuMessage(
            payload=base64.b64decode(value["payload"]),
            content_topic=value["content_topic"],
            timestamp=value["timestamp"],
            meta=base64.b64decode(value["meta"]),
        ),
        live=value["live"],
        deferred=value.get("deferred", False),
        opened=base64.b64decode(value.get("opened", "")),
    )


def decode_entries(values: Iterable[dict[str, Any]]) -> list[Entry]:
    """Return the entries of a task whose hash is that of their message; the others are dropped and logged.

    The ledger remembers the hash, so with another message's hash an entry would suppress that message.
    """
    entries = [decode_entry(value) for value in values]
    genuine = [entry for entry in entries if entry.hash == message_hash(entry.pubsub_topic, entry.message)]
    if len(genuine) < len(entries):
        log.error("entries_forged", messages=len(entries) - len(genuine))
    return genuine


def in_tasks(entries: Iterable[Entry], most: int | None = None) -> Iterator[list[Entry]]:
    """Yield messages in their order, each time as many as one task may carry.

    Args:
        most: messages of a task at most; they have `TASK_BYTES` at most, unless it carries one message alone.
    """
    task: list[Entry] = []
    size = 0
    for entry in entries:
        size += _bytes(entry)
        if task and (size > TASK_BYTES or len(task) == most):
            yield task
            task, size = [], _bytes(entry)
        task.append(entry)
    if task:
        yield task


def encoded_bytes(entry: Entry) -> int:
    """Return about how many bytes of Redis a message takes in a task: it is in base64 twice."""
    return _bytes(entry) * 16 // 9 + _OVERHEAD_BYTES


def _bytes(entry: Entry) -> int:
    return len(entry.message.payload) + len(entry.opened)


def send_entries(
    app: Celery,
    queue: Queue,
    entries: Sequence[Entry],
    *,
    alone: bool = False,
    rest: bool = False,
    waits_since: float | None = None,
    **options: Any,
) -> None:
    """Enqueue messages as one task.

    The headers say how many and how old they are, so that the bodies need not be read to measure the queue.

    Args:
        app: see `celery_app`.
        entries: at least one.
        alone: whether each is to be handled on its own because it, or a neighbour, failed before.
        rest: whether they go to the pool `rest`.
        waits_since: since when they have been in queues, in seconds since the epoch; unless given, since the oldest was
            seen. A message out of a Store counts from now on: its sender gave the time at which it was seen.
        options: of `Celery.send_task`, for example its connection.
    """
    now = time.time()
    oldest = min(entry.seen if entry.live else now for entry in entries)
    app.send_task(
        queue.task,
        args=[[encode_entry(entry) for entry in entries]],
        kwargs={"alone": True} if alone else {},
        queue=REST if rest else queue.name,
        headers={"messages": len(entries), "seen": oldest if waits_since is None else waits_since},
        argsrepr=f"({len(entries)} messages)",
        kwargsrepr="alone" if alone else "",
        **options,
    )
