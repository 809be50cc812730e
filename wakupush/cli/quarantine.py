"""``wakupush quarantine``: an operator lists, inspects, retries and drops messages that failed by themselves."""

from __future__ import annotations

import time
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wakupush.cli import kept
from wakupush.cli.kept import All, AsJson, Limit, NewerThan, OlderThan, RowNames, Yes
from wakupush.model.queues import DISPATCH, QUERY, REGISTRATION
from wakupush.runtime.usage import fail

if TYPE_CHECKING:
    from celery import Celery
    from psycopg import Connection
    from rich.table import Table

    from wakupush.model.dead_letters import Position
    from wakupush.model.quarantine import QuarantinedMessage, QuarantineSelection

# Commands import what they need when they run, as in `wakupush.cli.cli`.
# ruff: noqa: PLC0415

app = typer.Typer(
    help="Messages that failed by themselves. Needs Postgres, and Redis to retry. Exits with 1 if nothing matched.",
    no_args_is_help=True,
)

KIND = RowNames("quarantined message", "quarantined messages", "message hash")


class QueueName(StrEnum):
    """The queue that a message came through."""

    REGISTRATION = REGISTRATION.name
    QUERY = QUERY.name
    DISPATCH = DISPATCH.name


Keys = Annotated[list[str] | None, typer.Argument(help="Message hashes in hex, or unique beginnings of hashes.")]
OfQueue = Annotated[QueueName | None, typer.Option("--queue", help="Only those that came through this queue.")]
Reason = Annotated[str | None, typer.Option(help="Only those that failed so: 'process died', or an exception's name.")]


@app.command(name="list")
def list_(
    *,
    queue: OfQueue = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List quarantined messages, the newest first; as JSON it is one object a line."""
    from wakupush.postgres import quarantine

    with kept.database() as (_, connection):
        selection = _selection(connection, queue, reason, older_than, newer_than)
        pages = quarantine.every(connection, selection, limit)
        kept.print_pages(KIND, pages, limit=limit, as_json=as_json, facts=_facts, table=_table)


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="Message hash in hex, or a unique beginning of it.")],
    as_json: AsJson = False,
) -> None:
    """Show all that is known of a quarantined message, except secrets, and its events."""
    from wakupush.model.quarantine import QuarantineSelection
    from wakupush.postgres import dead_letters, quarantine

    with kept.database() as (_, connection):
        keys = _find(connection, [key])
        pages = list(quarantine.every(connection, QuarantineSelection(keys=keys), 1)) if keys else []
        if not pages:
            kept.end(KIND, 0, "shown")
        [[message]] = pages
        events = dead_letters.past(connection, message.trace_id, message.seen_at)
    kept.print_one(_facts(message), events, as_json=as_json)


@app.command()
def retry(
    keys: Keys = None,
    *,
    queue: OfQueue = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    every: All = False,
    yes: Yes = False,
) -> None:
    """Put messages into their queues again, with all attempts; each stays in quarantine until it is handled."""
    from kombu.exceptions import OperationalError as BrokerError

    from wakupush.postgres import quarantine
    from wakupush.redis.celery_app import celery_app

    with kept.database() as (settings, connection):
        selection = _selection(connection, queue, reason, older_than, newer_than)
        chosen = _chosen(connection, selection, keys, every=every)
        broker = celery_app(settings)
        try:
            kept.change(
                KIND,
                quarantine.count(connection, chosen),
                partial(_enqueue, broker, connection, chosen),
                ask=every and not yes,
                verb="retry",
                done="will be handled again",
            )
        except BrokerError:
            fail("Redis at WAKUPUSH_REDIS__URL does not answer: what is not in a queue stays in quarantine as it was")
        finally:
            broker.close()


@app.command()
def drop(
    keys: Keys = None,
    *,
    queue: OfQueue = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    every: All = False,
    yes: Yes = False,
) -> None:
    """Delete quarantined messages for good."""
    from wakupush.postgres import quarantine

    with kept.database() as (_, connection):
        selection = _selection(connection, queue, reason, older_than, newer_than)
        chosen = _chosen(connection, selection, keys, every=every)
        kept.change(
            KIND,
            quarantine.count(connection, chosen),
            partial(quarantine.drop, connection, chosen),
            ask=every and not yes,
            verb="delete",
            done="deleted",
        )


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


def _selection(
    connection: Connection,
    queue: QueueName | None,
    reason: str | None,
    older_than: str | None,
    newer_than: str | None,
) -> QuarantineSelection:
    """Return what the options select; messages that are quarantined from now on are left out."""
    from wakupush.model.quarantine import QuarantineSelection
    from wakupush.postgres import dead_letters

    since, until = kept.between(dead_letters.now(connection), newer_than, older_than)
    return QuarantineSelection(queue=queue and queue.value, reason=reason, since=since, until=until)


def _chosen(
    connection: Connection, selection: QuarantineSelection, keys: list[str] | None, *, every: bool
) -> QuarantineSelection:
    """Return the messages to change: those with the given hashes, or those that the options select."""
    prefixes = kept.named(KIND, keys, every=every)
    return replace(selection, keys=_find(connection, prefixes)) if prefixes else selection


def _find(connection: Connection, prefixes: list[str]) -> list[bytes]:
    from wakupush.postgres import quarantine

    return kept.find(KIND, prefixes, partial(quarantine.find, connection))


def _facts(message: QuarantinedMessage) -> dict[str, Any]:
    """Return a quarantined message for people and programs."""
    return {
        "message_hash": message.message_hash.hex(),
        "queue": message.queue,
        "reason": message.reason,
        "attempts": message.attempts,
        "bytes": message.bytes,
        "pubsub_topic": message.pubsub_topic,
        "seen_at": kept.seconds(message.seen_at),
        "quarantined_at": kept.seconds(message.quarantined_at),
        "retried_at": kept.seconds(message.retried_at),
        "owner": "known" if message.is_owned else "unknown",
        "trace_id": message.trace_id,
    }


def _table(page: list[QuarantinedMessage]) -> Table:
    from rich.table import Table

    table = Table("message hash", "since", "queue", "reason", "attempts", "bytes", "retried", "trace id", box=None)
    for facts in map(_facts, page):
        names = ("quarantined_at", "queue", "reason", "attempts", "bytes", "retried_at", "trace_id")
        table.add_row(facts["message_hash"][:16], *(str(facts[name] or "") for name in names))
    return table
