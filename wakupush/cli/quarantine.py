"""``wakupush quarantine``: an operator lists, inspects, retries and drops messages that failed by themselves."""

from __future__ import annotations

import time
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wakupush.cli.row_group import Rows, group, seconds
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from celery import Celery
    from psycopg import Connection

    from wakupush.cli.row_group import RowTable, Step
    from wakupush.model.dead_letters import Position
    from wakupush.model.quarantine import QuarantinedMessage, QuarantineSelection
    from wakupush.runtime.settings import Settings

# Commands import what they need when they run, as in `wakupush.cli.cli`.
# ruff: noqa: PLC0415


class QueueName(StrEnum):
    """The queue that a message came through."""

    REGISTRATION = REGISTRATION.name
    QUERY = QUERY.name
    DISPATCH = DISPATCH.name


def _store() -> RowTable[QuarantinedMessage, QuarantineSelection]:
    from wakupush.postgres import quarantine

    return quarantine


def _select(
    *, reason: str | None, choice: str | None, since: datetime | None, until: datetime | None
) -> QuarantineSelection:
    from wakupush.model.quarantine import QuarantineSelection

    return QuarantineSelection(queue=choice and str(choice), reason=reason, since=since, until=until)


@contextmanager
def _retry(settings: Settings, connection: Connection, selection: QuarantineSelection) -> Iterator[Step]:
    from kombu.exceptions import OperationalError as BrokerError

    from wakupush.redis.celery_app import celery_app

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
    from wakupush.postgres import quarantine
    from wakupush.redis.sending import send_entries

    with connection.transaction():
        again = quarantine.retry(connection, selection, after)
        for _, queue, entry in again:
            send_entries(broker, queue, [entry], alone=True, waits_since=time.time())
    return [position for position, _, _ in again]


def _facts(message: QuarantinedMessage) -> dict[str, Any]:
    return {
        "message_hash": message.message_hash.hex(),
        "queue": message.queue,
        "reason": message.reason,
        "attempts": message.attempts,
        "bytes": message.bytes,
        "pubsub_topic": message.pubsub_topic,
        "seen_at": seconds(message.seen_at),
        "quarantined_at": seconds(message.quarantined_at),
        "retried_at": seconds(message.retried_at),
        "owner": "known" if message.is_owned else "unknown",
        "trace_id": message.trace_id,
    }


app = group(
    Rows(
        help="Messages that failed by themselves. Needs Postgres, and Redis to retry. Exits with 1 if nothing matched.",
        one="quarantined message",
        several="quarantined messages",
        key="message hash",
        keys="message hashes",
        options={
            "choice": Annotated[
                QueueName | None, typer.Option("--queue", help="Only those that came through this queue.")
            ],
            "reason": Annotated[
                str | None, typer.Option(help="Only those that failed so: 'process died', or an exception's name.")
            ],
        },
        events="its events",
        retry_help=(
            "Put messages into their queues again, with all attempts; each stays in quarantine until it is handled."
        ),
        drop_help="Delete quarantined messages for good.",
        retry_verb="retry",
        retry_done="will be handled again",
        columns={
            "since": "quarantined_at",
            "queue": "queue",
            "reason": "reason",
            "attempts": "attempts",
            "bytes": "bytes",
            "retried": "retried_at",
            "trace id": "trace_id",
        },
        facts=_facts,
        more_facts=lambda _connection, _message: {},
        store=_store,
        select=_select,
        retry=_retry,
    )
)
