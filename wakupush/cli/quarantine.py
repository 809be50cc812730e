"""``wakupush quarantine``: an operator lists, inspects, retries and drops quarantined messages."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wakupush.cli.options import QueueName
from wakupush.cli.row_group import Rows, group, time_text

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg import Connection

    from wakupush.cli.row_group import RowTable, Step
    from wakupush.model.quarantine import QuarantinedMessage, QuarantineSelection
    from wakupush.runtime.settings import Settings


def _store() -> RowTable[QuarantinedMessage, QuarantineSelection]:
    from wakupush.postgres import quarantine

    return quarantine


def _select(
    *, reason: str | None, choice: str | None, since: datetime | None, until: datetime | None
) -> QuarantineSelection:
    from wakupush.model.quarantine import QuarantineSelection

    return QuarantineSelection(queue=choice and str(choice), reason=reason, since=since, until=until)


def _retry(settings: Settings, connection: Connection, selection: QuarantineSelection) -> AbstractContextManager[Step]:
    from wakupush.operate.quarantine import retrying

    return retrying(settings, connection, selection)


def _facts(message: QuarantinedMessage) -> dict[str, Any]:
    return {
        "message_hash": message.message_hash.hex(),
        "queue": message.queue,
        "reason": message.reason,
        "attempts": message.attempts,
        "bytes": message.bytes,
        "pubsub_topic": message.pubsub_topic,
        "seen_at": time_text(message.seen_at),
        "quarantined_at": time_text(message.quarantined_at),
        "retried_at": time_text(message.retried_at),
        "owner": "known" if message.is_owned else "unknown",
        "trace_id": message.trace_id,
    }


app = group(
    Rows(
        help=(
            "Messages that failed although nothing was down. Needs Postgres, and Redis to retry. Exits with 1 if none"
            " match."
        ),
        one="quarantined message",
        several="quarantined messages",
        key="message hash",
        keys="message hashes",
        options={
            "choice": Annotated[
                QueueName | None, typer.Option("--queue", help="Only those that came through this queue.")
            ],
            "reason": Annotated[
                str | None, typer.Option(help="Only those with this reason: 'process died', or an exception's name.")
            ],
        },
        events="its events",
        retry_help=(
            "Put messages into their queues again, with all attempts; each stays here until a worker has handled it."
        ),
        drop_help="Delete quarantined messages for good.",
        retry_verb="retry",
        retry_outcome="will be handled again",
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
