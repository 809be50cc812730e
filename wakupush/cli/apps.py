"""``wakupush apps``: the apps that the server tells apart."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from wakupush.cli.loading import open_postgres
from wakupush.cli.output import advancing_bar, complain
from wakupush.runtime.usage import UsageError

#: Topics without an app that are listed.
MOST_TOPICS = 10

app = typer.Typer(help="The apps that the server tells apart.", no_args_is_help=True)


@app.command()
def assign(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing, show what would change.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the totals as JSON.")] = False,
) -> None:
    """Write into each registration which app of the settings takes its device. Needs the server's key and Postgres.

    Run it after the apps in the settings have changed. You may stop it at any time, and run it again, while the server
    runs. It exits with 1 if some devices have no app.
    """
    from wakupush.operate import apps
    from wakupush.postgres.apps import estimate
    from wakupush.protocol.sealing import UnsealableError
    from wakupush.server.engine.identity import load_identity

    with (
        open_postgres() as (settings, connection),
        advancing_bar("devices", estimate(connection)) as advance,
    ):
        at_rest = load_identity(settings).at_rest
        try:
            totals = apps.assign(connection, at_rest, settings, dry=dry_run, progress=advance)
        except UnsealableError:
            raise UsageError("a registration was not sealed with this private key: is it the server's?") from None
    topics = totals.without_app.most_common()
    if as_json:
        without = [{"platform": platform, "topic": topic, "devices": count} for (platform, topic), count in topics]
        facts = {"changed": totals.changed, "unchanged": totals.unchanged, "without_app": without, "dry_run": dry_run}
        typer.echo(json.dumps(facts))
    else:
        typer.echo(f"{totals.changed} devices {'would change' if dry_run else 'changed'}, {totals.unchanged} stay")
        for (platform, topic), count in topics[:MOST_TOPICS]:
            complain(f"no app takes {count} {platform} devices with the topic {topic!r}: their notifications wait")
        if len(topics) > MOST_TOPICS:
            complain(f"and {len(topics) - MOST_TOPICS} topics more; --json lists them all")
    if topics:
        raise typer.Exit(1)
