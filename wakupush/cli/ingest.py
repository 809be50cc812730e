"""``wakupush ingest``: puts messages from Waku onto the queues."""

import sys
from typing import Annotated

import typer

from wakupush.cli.loading import load
from wakupush.runtime.usage import UsageError

app = typer.Typer(help="Pull messages from Waku onto the Redis queues.", no_args_is_help=True)


@app.command()
def live() -> None:
    """Poll the relays of the Waku nodes and enqueue the messages for this server."""
    from wakupush.ingest.live.process import run

    run(load(process="ingest live"))


@app.command()
def reconcile(
    once: Annotated[bool, typer.Option("--once", help="Walk each Store once, print the result, and exit.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            help="With --once: start of the walk, as 90s, 30m, 2h, 1d ago or an ISO time (UTC); else the whole window."
        ),
    ] = None,
) -> None:
    """Walk the Stores of nodes and enqueue missed messages.

    With --once it exits with 1 if it did not walk each Store to its end.
    """
    import time

    from wakupush.ingest.reconcile import once as reconcile_once
    from wakupush.ingest.reconcile import process as reconciling
    from wakupush.runtime.durations import parse_since

    if since is not None and not once:
        raise UsageError("--since needs --once")
    try:
        start = None if since is None else parse_since(since, time.time())
    except ValueError:
        raise UsageError("--since is a duration like 90s, 30m, 2h or 1d, or a time like 2026-11-21T04:00") from None
    settings = load(process="ingest reconcile")
    if once:
        sys.exit(reconcile_once.run(settings, start))
    reconciling.run(settings)
