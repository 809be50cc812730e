"""``wakupush tokens``: device tokens that died, and the brake that keeps the server from marking more."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from wakupush.cli.loading import open_postgres
from wakupush.cli.options import AppOption, AsJson, PlatformName, Yes, duration, platform_of
from wakupush.cli.output import print_table

if TYPE_CHECKING:
    from wakupush.operate.tokens import TokenStatus

app = typer.Typer(help="Dead device tokens, and the brake on marking more. Needs only Postgres.", no_args_is_help=True)

PlatformOption = Annotated[PlatformName | None, typer.Option("--platform", help="Only of this one; default: of both.")]


@app.command("list")
def list_(*, as_json: AsJson = False) -> None:
    """Show for each app and platform how many tokens are bad, and how many died. Exits with 1 if the brake holds."""
    from wakupush.operate import tokens

    with open_postgres() as (settings, connection):
        statuses = tokens.statuses(connection, settings.tokens)
    if as_json:
        for status in statuses:
            typer.echo(json.dumps(_facts(status)))
    else:
        _print(statuses)
    raise typer.Exit(int(any(status.is_stopped for status in statuses)))


@app.command()
def revive(
    *,
    since: Annotated[str, typer.Option(help="Those that died within this time: 45s, 90m, 2h, 3d.")],
    platform: PlatformOption = None,
    app_name: AppOption = None,
    yes: Yes = False,
) -> None:
    """Bring back tokens that died by mistake, for example while gorush had the wrong APNs environment.

    Queries return their devices again. It may be stopped and run again. Exits with 1 if none died.
    """
    from wakupush.operate.apps import select
    from wakupush.postgres import dead_letters, dead_tokens

    age = timedelta(seconds=duration(since, "--since"))
    with open_postgres() as (settings, connection):
        selection = select(settings, app_name, platform_of(platform) if platform else None)
        if not yes:
            names = ", ".join(one.title for one in selection)
            typer.confirm(f"bring back the tokens of {names} that died within {since}?", abort=True, err=True)
        until = dead_letters.now(connection)
        count = 0
        while changed := dead_tokens.revive(connection, selection, until - age, until):
            count += changed
    typer.echo(f"{count} tokens are back" if count else "no token died within this time", err=not count)
    raise typer.Exit(int(not count))


@app.command()
def forget(platform: Annotated[PlatformName, typer.Argument(help="Whose counts.")], app_name: AppOption = None) -> None:
    """Forget how many tokens of a platform were bad, which releases the brake after a fault is repaired."""
    from wakupush.operate.apps import select
    from wakupush.postgres import dead_tokens

    with open_postgres() as (settings, connection):
        selection = select(settings, app_name, platform_of(platform))
        dead_tokens.forget_trials(connection, selection)
    for one in selection:
        typer.echo(f"{one.title}: the counts begin from zero")


def _facts(status: TokenStatus) -> dict[str, object]:
    app_name, platform = status.app_platform.labels
    return {
        "app": app_name,
        "platform": platform,
        "tried_day": status.day.tried,
        "bad_day": status.day.bad,
        "tried_20m": status.recent.tried,
        "bad_20m": status.recent.bad,
        "died_day": status.deaths.day,
        "died_hour": status.deaths.hour,
        "brake": status.is_stopped,
    }


def _print(statuses: list[TokenStatus]) -> None:
    rows = [_facts(status) | {"brake": "holds" if status.is_stopped else ""} for status in statuses]
    print_table(
        [map(str, row.values()) for row in rows],
        *("app", "platform", "tried in a day", "bad", "tried in 20 min", "bad", "died in a day", "in an hour", "brake"),
    )
