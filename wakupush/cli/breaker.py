"""``wakupush breaker``: the circuit breakers between the server and the platforms."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from wakupush.cli.loading import load_redis
from wakupush.cli.options import AppOption, AsJson, PlatformName, duration, platform_of
from wakupush.cli.output import print_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

    from wakupush.model.platforms import AppPlatform
    from wakupush.operate.breakers import BreakerStatus

app = typer.Typer(
    help="The circuit breakers, which stop posts to a platform while its route is broken. Needs only Redis.",
    no_args_is_help=True,
)

PlatformArgument = Annotated[PlatformName, typer.Argument(help="Whose breaker.")]


@app.command("list")
def list_(*, as_json: AsJson = False) -> None:
    """List the breakers of all apps and platforms. Exits with 1 if one is not closed."""
    from wakupush.operate import breakers

    with _selected(None, None) as (redis, selection):
        statuses = breakers.statuses(redis, selection)
    if as_json:
        for breaker in statuses:
            typer.echo(json.dumps(_facts(breaker)))
    else:
        _print(statuses)
    raise typer.Exit(int(any(breaker.view.state for breaker in statuses)))


@app.command("open")
def open_(
    platform: PlatformArgument,
    *,
    app_name: AppOption = None,
    duration_text: Annotated[str, typer.Option("--for", help="How long: 45s, 10m, 2h.")] = "10m",
) -> None:
    """Stop posts to a platform for some time, for example while gorush is replaced. Deliveries wait meanwhile."""
    from wakupush.redis.breaker import BreakerStore

    seconds = duration(duration_text, "--for")
    with _selected(app_name, platform) as (redis, selection):
        store = BreakerStore(redis)
        for each in selection:
            store.open_for(each, seconds)
    for each in selection:
        typer.echo(f"{each.title}: open for {duration_text}; then probes find out whether the route works")


@app.command("close")
def close(platform: PlatformArgument, *, app_name: AppOption = None) -> None:
    """Let posts go out again at once, without waiting for the next probe. Exits with 1 if nothing was open."""
    from wakupush.redis.breaker import BreakerStore

    with _selected(app_name, platform) as (redis, selection):
        store = BreakerStore(redis)
        closed = [each for each in selection if store.close(each)]
    for each in selection:
        typer.echo(f"{each.title}: {'closed' if each in closed else 'it was closed already'}")
    raise typer.Exit(int(not closed))


@contextmanager
def _selected(app_name: str | None, platform: PlatformName | None) -> Iterator[tuple[Redis, list[AppPlatform]]]:
    from wakupush.operate import apps

    with load_redis() as (settings, redis):
        yield redis, apps.select(settings, app_name, platform_of(platform) if platform else None)


def _facts(breaker: BreakerStatus) -> dict[str, object]:
    app_name, platform = breaker.app_platform.labels
    return {
        "app": app_name,
        "platform": platform,
        "state": breaker.view.state.name.lower(),
        "open_seconds": round(breaker.open_seconds, 1),
        "faults": breaker.view.faults,
        "probes": breaker.view.probes,
        "no_free_slot": breaker.view.full,
    }


def _print(statuses: list[BreakerStatus]) -> None:
    names = ("app", "platform", "state", "open_seconds", "faults", "probes", "no_free_slot")
    headings = {"open_seconds": "seconds until a probe", "faults": "faults while closed"}
    rows = [[str(facts[name] or "") for name in names] for facts in map(_facts, statuses)]
    print_table(rows, *(headings.get(name, name.replace("_", " ")) for name in names))
