"""``wakupush dead-letters``: an operator lists, inspects, sends again and drops what could not be delivered."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wakupush.cli import kept
from wakupush.cli.kept import All, AsJson, Limit, NewerThan, OlderThan, RowNames, Yes
from wakupush.runtime.usage import fail

if TYPE_CHECKING:
    from psycopg import Connection
    from rich.table import Table

    from wakupush.model.dead_letters import DeadLetter, DeadLetterDevice, Selection
    from wakupush.model.failures import Failure

# Commands import what they need when they run, as in `wakupush.cli.cli`.
# ruff: noqa: PLC0415

app = typer.Typer(
    help="Notifications that ran out of attempts or of time. Needs Postgres alone. Exits with 1 if nothing matched.",
    no_args_is_help=True,
)

KIND = RowNames("dead letter", "dead letters", "delivery key")


class PlatformName(StrEnum):
    """Where the device is reached."""

    IOS = "ios"
    ANDROID = "android"


Keys = Annotated[list[str] | None, typer.Argument(help="Delivery keys in hex, or unique beginnings of keys.")]
Reason = Annotated[str | None, typer.Option(help="Only those that ended with this failure.", metavar="FAILURE")]
OnPlatform = Annotated[PlatformName | None, typer.Option("--platform", help="Only those of this platform.")]


@app.command(name="list")
def list_(
    *,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    platform: OnPlatform = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the newest first; as JSON it is one object a line."""
    from wakupush.postgres import dead_letters

    with kept.database() as (_, connection):
        selection = _selection(connection, reason, older_than, newer_than, platform)
        pages = dead_letters.every(connection, selection, limit)
        kept.print_pages(KIND, pages, limit=limit, as_json=as_json, facts=_facts, table=_table)


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="Delivery key in hex, or a unique beginning of it.")],
    as_json: AsJson = False,
) -> None:
    """Show all that is known of a dead letter, except secrets, and the events of its message."""
    from wakupush.model.dead_letters import Selection
    from wakupush.postgres import dead_letters

    with kept.database() as (_, connection):
        delivery_keys = _find(connection, [key])
        pages = list(dead_letters.every(connection, Selection(keys=delivery_keys), 1)) if delivery_keys else []
        if not pages:
            kept.end(KIND, 0, "shown")
        [[letter]] = pages
        device = dead_letters.device(connection, letter.delivery_key)
        events = dead_letters.past(connection, letter.trace_id, letter.seen_at)
    kept.print_one(_facts(letter) | _device_facts(device), events, as_json=as_json)


@app.command()
def retry(
    keys: Keys = None,
    *,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    platform: OnPlatform = None,
    every: All = False,
    yes: Yes = False,
) -> None:
    """Send dead letters again: they are due at once, with all attempts and their time to live anew."""
    from wakupush.postgres import dead_letters
    from wakupush.server.delivery.retry import times_to_live

    with kept.database() as (settings, connection):
        selection = _selection(connection, reason, older_than, newer_than, platform)
        time_to_live = times_to_live(settings.delivery)
        chosen = _chosen(connection, selection, keys, every=every)
        kept.change(
            KIND,
            dead_letters.count(connection, chosen),
            partial(dead_letters.retry, connection, chosen, time_to_live=time_to_live),
            ask=every and not yes,
            verb="send again",
            done="will be sent again",
        )


@app.command()
def drop(
    keys: Keys = None,
    *,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    platform: OnPlatform = None,
    every: All = False,
    yes: Yes = False,
) -> None:
    """Delete dead letters with their content, for good."""
    from wakupush.postgres import dead_letters

    with kept.database() as (_, connection):
        selection = _selection(connection, reason, older_than, newer_than, platform)
        chosen = _chosen(connection, selection, keys, every=every)
        kept.change(
            KIND,
            dead_letters.count(connection, chosen),
            partial(dead_letters.drop, connection, chosen),
            ask=every and not yes,
            verb="delete",
            done="deleted",
        )


def _selection(
    connection: Connection,
    reason: str | None,
    older_than: str | None,
    newer_than: str | None,
    platform: PlatformName | None,
) -> Selection:
    """Return what the options select; rows that end from now on are left out."""
    from wakupush.model.dead_letters import Selection
    from wakupush.model.platforms import Platform
    from wakupush.postgres import dead_letters

    since, until = kept.between(dead_letters.now(connection), newer_than, older_than)
    return Selection(
        reason=_reason(reason) if reason else None,
        platform=next((each for each in Platform if each.label == platform), None),
        since=since,
        until=until,
    )


def _reason(label: str) -> Failure:
    """Return the failure with this label; exit with an error if dead letters cannot have it."""
    from wakupush.model.failures import BY_LABEL, Failure, Retry

    ends = {Failure.ATTEMPTS_EXHAUSTED, Failure.DELIVERY_EXPIRED}
    possible = sorted(label for label, failure in BY_LABEL.items() if failure in ends or failure.retry != Retry.NEVER)
    if label not in possible:
        what = "ends no delivery as a dead letter" if label in BY_LABEL else "is no failure"
        fail(f"--reason {label} {what}; there are {', '.join(possible)}")
    return BY_LABEL[label]


def _chosen(connection: Connection, selection: Selection, keys: list[str] | None, *, every: bool) -> Selection:
    """Return the rows to change: those with the given keys, or those that the options select."""
    prefixes = kept.named(KIND, keys, every=every)
    return replace(selection, keys=_find(connection, prefixes)) if prefixes else selection


def _find(connection: Connection, prefixes: list[str]) -> list[bytes]:
    from wakupush.postgres import dead_letters

    return kept.find(KIND, prefixes, partial(dead_letters.find, connection))


def _facts(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter for people and programs."""
    return {
        "delivery_key": letter.delivery_key.hex(),
        "state": letter.state.value,
        "platform": letter.platform.label,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "seen_at": kept.seconds(letter.seen_at),
        "finished_at": kept.seconds(letter.finished_at),
        "expires_at": kept.seconds(letter.expires_at),
        "trace_id": letter.trace_id,
    }


def _device_facts(device: DeadLetterDevice | None) -> dict[str, Any]:
    if device is None:
        return {"device": "unknown"}
    if not device.registered:
        return {"device": "unregistered"}
    return {
        "device": "its token is dead" if device.token_died_at else "registered",
        "token_died_at": kept.seconds(device.token_died_at),
        "suspicions": device.suspicions,
        "registered_anew_since": None if device.unchanged is None else not device.unchanged,
    }


def _table(page: list[DeadLetter]) -> Table:
    from rich.table import Table

    table = Table("delivery key", "ended", "platform", "reason", "attempts", "trace id", box=None)
    for facts in map(_facts, page):
        names = ("finished_at", "platform", "reason", "attempts", "trace_id")
        table.add_row(facts["delivery_key"][:16], *(str(facts[name] or "") for name in names))
    return table
