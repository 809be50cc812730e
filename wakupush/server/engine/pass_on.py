"""Passing on messages that other queues handle, or this one later."""

from collections.abc import Iterable

from celery import Celery

from wakupush.model.entries import Entry
from wakupush.model.queues import Queue
from wakupush.redis.sending import in_tasks, send_entries


def pass_on(app: Celery, messages: Iterable[tuple[Queue, Entry]], *, is_rest: bool) -> None:
    """Put messages into their queues; to be done before the task they came in is acknowledged.

    Args:
        is_rest: whether they go through the queue `rest`.

    Raises:
        OperationalError: the broker failed; the messages come back with their task.
    """
    by_queue: dict[Queue, list[Entry]] = {}
    for queue, entry in messages:
        by_queue.setdefault(queue, []).append(entry)
    for queue, entries in sorted(by_queue.items(), key=lambda pair: pair[0].name):
        for task in in_tasks(entries):
            send_entries(app, queue, task, rest=is_rest)
