"""``wakupush dead-letters``: an operator lists, inspects, sends again and drops undelivered notifications."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wakupush.cli.loading import open_postgres
from wakupush.cli.options import AsJson, PlatformName, platform_of
from wakupush.cli.output import print_table
from wakupush.cli.row_group import Rows, group, time_text

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg import Connection

    from wakupush.cli.row_group import RowTable, Step
    from wakupush.model.dead_letters import DeadLetter, Selection
    from wakupush.runtime.settings import Settings


def _store() -> RowTable[DeadLetter, Selection]:
    from wakupush.postgres import dead_letters

    return dead_letters


def _select(*, reason: str | None, choice: str | None, since: datetime | None, until: datetime | None) -> Selection:
    from wakupush.model.dead_letters import Selection
    from wakupush.operate.dead_letters import failure_of

    return Selection(
        reason=failure_of(reason) if reason else None,
        platform=platform_of(PlatformName(choice)) if choice else None,
        since=since,
        until=until,
    )


def _retry(settings: Settings, connection: Connection, selection: Selection) -> AbstractContextManager[Step]:
    from wakupush.postgres import dead_letters
    from wakupush.server.delivery.retry import times_to_live

    retry = partial(dead_letters.retry, connection, selection, time_to_live=times_to_live(settings.delivery))
    return nullcontext(retry)


def _facts(letter: DeadLetter) -> dict[str, Any]:
    return {
        "delivery_key": letter.delivery_key.hex(),
        "state": letter.state.value,
        "app": letter.app_platform.app,
        "platform": letter.app_platform.platform.label,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "seen_at": time_text(letter.seen_at),
        "finished_at": time_text(letter.finished_at),
        "expires_at": time_text(letter.expires_at),
        "trace_id": letter.trace_id,
    }


def _device_facts(connection: Connection, letter: DeadLetter) -> dict[str, Any]:
    from wakupush.postgres import dead_letters

    device = dead_letters.device(connection, letter.delivery_key)
    if device is None:
        return {"device": "unknown"}
    if not device.registered:
        return {"device": "unregistered"}
    return {
        "device": "its token is dead" if device.token_died_at else "registered",
        "token_died_at": time_text(device.token_died_at),
        "suspicions": device.suspicions,
        "registered_anew_since": None if device.unchanged is None else not device.unchanged,
    }


app = group(
    Rows(
        help="Notifications that ran out of attempts or time. Needs only Postgres. Exits with 1 if nothing matched.",
        one="dead letter",
        several="dead letters",
        key="delivery key",
        keys="delivery keys",
        options={
            "choice": Annotated[PlatformName | None, typer.Option("--platform", help="Only those of this platform.")],
            "reason": Annotated[
                str | None, typer.Option(help="Only those that ended with this failure.", metavar="FAILURE")
            ],
        },
        events="the events of its message",
        retry_help="Send dead letters again: they are due at once; attempts and time to live start over.",
        drop_help="Delete dead letters with their content, for good.",
        retry_verb="send again",
        retry_outcome="will be sent again",
        columns={
            "ended": "finished_at",
            "app": "app",
            "platform": "platform",
            "reason": "reason",
            "attempts": "attempts",
            "trace id": "trace_id",
        },
        facts=_facts,
        more_facts=_device_facts,
        store=_store,
        select=_select,
        retry=_retry,
    )
)


@app.command()
def stats(*, as_json: AsJson = False) -> None:
    """Count dead letters by app, platform and reason, the most first. Exits with 1 if there are none."""
    from wakupush.postgres import dead_letters

    with open_postgres() as (_, connection):
        counts = dead_letters.counts(connection)
    rows = sorted(
        ((number, *app_platform.labels, reason) for (app_platform, reason), number in counts.items()), reverse=True
    )
    by_reason: Counter[str] = Counter()
    for number, _, _, reason in rows:
        by_reason[reason] += number
    bounded = {reason for reason, number in by_reason.items() if number >= dead_letters.MOST_COUNTED}
    if as_json:
        for number, name, platform, reason in rows:
            facts = {"app": name, "platform": platform, "reason": reason, "count": number}
            typer.echo(json.dumps({**facts, "is_least": reason in bounded}))
    else:
        lines = []
        for number, *labels, reason in rows:
            more = "+" if reason in bounded else ""
            lines.append((f"{number}{more}", *labels, reason))
        print_table(lines, "count", "app", "platform", "reason")
    raise typer.Exit(int(not rows))
