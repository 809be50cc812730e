"""Passing on messages that other queues handle, or this one later."""

from collections.abc import Iterable
from dataclasses import replace

from celery import Celery

from wakupush.model.entries import Entry
from wakupush.model.queues import Queue
from wakupush.protocol.application import seal_opened
from wakupush.protocol.identity import Identity
from wakupush.redis.sending import in_tasks, send_entries
from wakupush.server.engine.message import Message


def as_opened(messages: Iterable[tuple[Queue, Message]], identity: Identity) -> list[tuple[Queue, Entry]]:
    """Return messages as their next worker gets them: sealed as this one opened them."""
    entries: list[tuple[Queue, Entry]] = []
    for queue, message in messages:
        entry = message.entry
        if message.opened is not None:
            entry = replace(entry, opened=seal_opened(message.opened, identity.opened_key, entry.hash))
        entries.append((queue, entry))
    return entries


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
