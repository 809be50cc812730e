"""``wakupush shadow``: running beside the reference server, and switching over from it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

import typer

from wakupush.cli import kept
from wakupush.runtime.usage import fail

# Commands import what they need when they run, as in `wakupush.cli.cli`.
# ruff: noqa: PLC0415

app = typer.Typer(help="Run beside the reference server, and switch over from it.", no_args_is_help=True)


@app.callback()
def _shadow() -> None:
    """Run beside the reference server, and switch over from it."""


@app.command()
def end(
    *,
    reference_stopped_at: Annotated[
        str,
        typer.Option(help="When the reference server was stopped: an ISO time (UTC), or how long ago, as 90s or 5m."),
    ],
) -> None:
    """Answer and push from now on in place of the reference server; stop it and import from it once more beforehand.

    Messages that were seen since the stop, and in the minute before it, are answered and pushed unless the reference
    handled them. Older ones never are.
    """
    from wakupush.runtime.durations import parse_since
    from wakupush.takeover import switching
    from wakupush.takeover.errors import TakeoverError

    now = time.time()
    try:
        stopped_at = parse_since(reference_stopped_at, now)
    except ValueError:
        fail("--reference-stopped-at is a time like 2026-11-21T04:00:30, or a duration like 90s or 5m")
    try:
        with kept.database() as (settings, connection):
            switched = switching.end(connection, stopped_at, now=now, keep=settings.retention.shadowed_messages)
    except TakeoverError as error:
        fail(str(error))
    since = datetime.fromtimestamp(switched.answers_since, UTC)
    typer.echo(f"what was seen since {since:%Y-%m-%d %H:%M:%S} UTC is answered and pushed here")
    typer.echo(
        f"{switched.answered} messages of before the switch are handled now, {switched.left} are left as they are"
    )
    if switched.lost_seconds > 0:
        typer.echo(
            f"wakupush: messages of the first {switched.lost_seconds:.0f} s of that time are not kept any more:"
            " clients repeat registrations and queries, push requests are too old",
            err=True,
        )
    typer.echo("take WAKUPUSH_SHADOW away before a process is started again")


@app.command()
def compare() -> None:
    """Estimate how often the reference server answers: count questions that are followed by a message like an answer.

    The counts are by kind and size. A control shows the same count for the time a minute before each question, when it
    was not asked yet. Needs the Store of a node.
    """
    from rich.table import Table

    from wakupush.takeover import answering
    from wakupush.waku.errors import NodeError
    from wakupush.waku.store import Store

    with kept.database() as (settings, connection):
        name, url = next(iter(settings.stores.items()))
        try:
            with Store(url, timeout=settings.waku.timeout, max_read_bytes=settings.waku.max_read_bytes) as store:
                rates = answering.rates(connection, store, time.time())
        except NodeError as error:
            fail(f"the Store at {name} does not answer: {type(error).__name__}")
    if not rates:
        fail("there were no questions in the last minutes: compare while this server is in shadow")
    table = Table("questions of", "bytes of the answer", "questions", "answered", "a minute before", box=None)
    for rate in rates:
        table.add_row(rate.queue, *map(str, (rate.bytes, rate.questions, rate.followed, rate.control)))
    kept.print_tables(table)
