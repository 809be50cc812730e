"""Putting messages from the quarantine into their queues again."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from celery import Celery
from kombu.exceptions import OperationalError as BrokerError
from psycopg import Connection

from wakupush.model.dead_letters import Position
from wakupush.model.quarantine import QuarantineSelection
from wakupush.postgres import quarantine
from wakupush.redis.celery_app import celery_app
from wakupush.redis.sending import send_entries
from wakupush.runtime.settings import Settings
from wakupush.runtime.usage import UsageError


@contextmanager
def retrying(
    settings: Settings, connection: Connection, selection: QuarantineSelection
) -> Iterator[Callable[[Position | None], list[Position]]]:
    """Yield a function that enqueues the next messages after a position and returns their positions; none at the end.

    Raises:
        UsageError: Redis does not answer. Messages in no queue stay in quarantine.
    """
    broker = celery_app(settings)
    try:
        yield partial(_enqueue, broker, connection, selection)
    except BrokerError:
        raise UsageError(
            "Redis at WAKUPUSH_REDIS__URL does not answer: what is not in a queue stays in quarantine as it was"
        ) from None
    finally:
        broker.close()


def _enqueue(
    broker: Celery, connection: Connection, selection: QuarantineSelection, after: Position | None
) -> list[Position]:
    """Put the next messages into their queues, each alone, and return their positions.

    If Redis fails, they stay in quarantine; one that is in a queue already is then found processed, and does nothing.
    """
    with connection.transaction():
        again = quarantine.retry(connection, selection, after)
        for _, queue, entry in again:
            # Until the commit it is in the ledger: a worker must not take it for a copy.
            deferred = replace(entry, deferred=True)
            send_entries(broker, queue, [deferred], alone=True, waits_since=time.time())
    return [position for position, _, _ in again]
