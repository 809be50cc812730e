"""``wakupush dead-letters``: an operator lists, inspects, sends again and drops what could not be delivered."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wakupush.runtime.durations import MOST_DAYS, parse_duration
from wakupush.runtime.usage import fail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg import Connection
    from rich.table import Table

    from wakupush.model.dead_letters import DeadLetter, DeadLetterDevice, PastEvent, Position, Selection
    from wakupush.model.failures import Failure
    from wakupush.runtime.settings import Settings

# Commands import what they need when they run, as in `wakupush.cli`.
# ruff: noqa: PLC0415

app = typer.Typer(
    help="Notifications that ran out of attempts or of time. Needs Postgres alone. Exits with 1 if nothing matched.",
    no_args_is_help=True,
)

#: Exit code where no dead letter matched.
NOTHING = 1
#: Columns of a terminal that nothing is too wide for.
WIDE = 1000


class PlatformName(StrEnum):
    """Where the device is reached."""

    IOS = "ios"
    ANDROID = "android"


Keys = Annotated[list[str] | None, typer.Argument(help="Delivery keys in hex, or beginnings that no other has.")]
Reason = Annotated[str | None, typer.Option(help="Only those that ended with this failure.", metavar="FAILURE")]
OlderThan = Annotated[str | None, typer.Option(help="Only those that ended longer ago: 45s, 90m, 2h, 3d.")]
NewerThan = Annotated[str | None, typer.Option(help="Only those that ended since: 45s, 90m, 2h, 3d.")]
OnPlatform = Annotated[PlatformName | None, typer.Option("--platform", help="Only those of this platform.")]
All = Annotated[bool, typer.Option("--all", help="All that the other options leave.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs.")]


@app.command(name="list")
def list_(
    *,
    reason: Reason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    platform: OnPlatform = None,
    limit: Annotated[int, typer.Option(help="Dead letters at most.", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the newest first; as JSON it is one object a line."""
    from wakupush.postgres import dead_letters

    shown = 0
    with _database() as (_, connection):
        selection = _selection(connection, reason, older_than, newer_than, platform)
        for page in dead_letters.every(connection, selection, limit):
            shown += len(page)
            if as_json:
                for letter in page:
                    typer.echo(json.dumps(_facts(letter)))
            else:
                _print(_table(page))
        if not as_json and shown == limit:
            typer.echo(f"{shown} shown; --limit shows more")
        if not shown:
            _end(0, "shown")
    sys.exit(0 if shown else NOTHING)


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="Delivery key in hex, or a beginning that no other has.")],
    as_json: AsJson = False,
) -> None:
    """Show all that is known of a dead letter and is no secret, and the events of the message that it came with."""
    from wakupush.model.dead_letters import Selection
    from wakupush.postgres import dead_letters

    with _database() as (_, connection):
        delivery_keys = _find(connection, [key])
        pages = list(dead_letters.every(connection, Selection(keys=delivery_keys), 1)) if delivery_keys else []
        if not pages:
            _end(0, "shown")
        [[letter]] = pages
        device = dead_letters.device(connection, letter.delivery_key)
        events = dead_letters.past(connection, letter)
    facts = _facts(letter) | _device_facts(device)
    if as_json:
        typer.echo(json.dumps(facts | {"events": [_event_facts(event) for event in events]}))
    else:
        _print(_facts_table(facts), _events_table(events))


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

    with _database() as (settings, connection):
        selection = _selection(connection, reason, older_than, newer_than, platform)
        time_to_live = times_to_live(settings.delivery)
        _change(
            connection,
            _chosen(connection, selection, keys, every=every),
            lambda chosen, after: dead_letters.retry(connection, chosen, after, time_to_live=time_to_live),
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

    with _database() as (_, connection):
        selection = _selection(connection, reason, older_than, newer_than, platform)
        _change(
            connection,
            _chosen(connection, selection, keys, every=every),
            lambda chosen, after: dead_letters.drop(connection, chosen, after),
            ask=every and not yes,
            verb="delete",
            done="deleted",
        )


@contextmanager
def _database() -> Iterator[tuple[Settings, Connection]]:
    """Open a connection in autocommit mode, so that each statement is committed by itself."""
    import psycopg

    from wakupush.runtime.connections.postgres import check_dsn, reason, timeouts
    from wakupush.runtime.settings import SettingsError, load_settings

    try:
        settings = load_settings()
        postgres = settings.postgres
        dsn = check_dsn(postgres)
        patience = timeouts(dsn, connect=postgres.timeout, statement=postgres.statement_timeout)
        with psycopg.connect(dsn, autocommit=True, **patience) as connection:
            yield settings, connection
    except SettingsError as error:
        fail(str(error))
    except psycopg.errors.UndefinedTable:
        fail("the database has no schema yet, or an old one: run `wakupush migrate`")
    except psycopg.OperationalError as error:
        fail(f"the database at WAKUPUSH_POSTGRES__DSN does not answer: {reason(error)}")
    except psycopg.Error as error:
        fail(f"the database at WAKUPUSH_POSTGRES__DSN answers with {type(error).__name__}; see `wakupush doctor`")


def _selection(
    connection: Connection,
    reason: str | None,
    older_than: str | None,
    newer_than: str | None,
    platform: PlatformName | None,
) -> Selection:
    """Return what the options select; what ends from now on is left out."""
    from wakupush.model.dead_letters import Selection
    from wakupush.model.platforms import Platform
    from wakupush.postgres import dead_letters

    now = dead_letters.now(connection)
    return Selection(
        reason=_reason(reason) if reason else None,
        platform=next((each for each in Platform if each.label == platform), None),
        since=now - _age(newer_than, "--newer-than") if newer_than else None,
        until=now - _age(older_than, "--older-than") if older_than else now,
    )


def _reason(label: str) -> Failure:
    """Return the failure with a label, if dead letters can have it."""
    from wakupush.model.failures import BY_LABEL, Failure, Retry

    ends = {Failure.ATTEMPTS_EXHAUSTED, Failure.DELIVERY_EXPIRED}
    possible = sorted(label for label, failure in BY_LABEL.items() if failure in ends or failure.retry != Retry.NEVER)
    if label not in possible:
        what = "ends no delivery as a dead letter" if label in BY_LABEL else "is no failure"
        fail(f"--reason {label} {what}; there are {', '.join(possible)}")
    return BY_LABEL[label]


def _age(text: str, option: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError:
        fail(f"{option} is a number and a unit, such as 45s, 90m, 2h or 3d, up to {MOST_DAYS} days")


def _chosen(connection: Connection, selection: Selection, keys: list[str] | None, *, every: bool) -> Selection:
    """Return what is to be changed: keys, or what the options select, but never everything by mistake."""
    if keys and every:
        fail("name the keys of dead letters or --all, not both")
    if not keys and not every:
        fail("name the keys of dead letters, or --all for all that the other options leave")
    return replace(selection, keys=_find(connection, keys)) if keys else selection


def _find(connection: Connection, prefixes: list[str]) -> list[bytes]:
    from wakupush.postgres import dead_letters

    found = []
    for prefix in prefixes:
        if not re.fullmatch(r"[0-9a-fA-F]{1,64}", prefix):
            fail("a delivery key is 64 hex digits, or the first of them")
        matches = dead_letters.find(connection, prefix.lower())
        if len(matches) > 1:
            fail(f"several dead letters begin with {prefix}")
        found += matches
    return found


def _change(
    connection: Connection,
    selection: Selection,
    step: Callable[[Selection, Position | None], list[Position]],
    *,
    ask: bool,
    verb: str,
    done: str,
) -> None:
    """Change what is selected in chunks that are committed each, and say how many there were."""
    from rich.console import Console
    from rich.progress import Progress

    from wakupush.postgres import dead_letters

    total = dead_letters.count(connection, selection)
    if total and ask:
        typer.confirm(f"{verb} {total} dead letters?", abort=True, err=True)
    changed, end = 0, None
    with Progress(console=Console(stderr=True), disable=total <= dead_letters.CHUNK_ROWS) as progress:
        task = progress.add_task(done, total=total)
        while chunk := step(selection, end):
            changed += len(chunk)
            end = chunk[-1]
            progress.update(task, completed=changed)
    _end(changed, done)


def _end(count: int, done: str) -> None:
    typer.echo(f"{count} dead letters {done}" if count else "no dead letter matched", err=not count)
    sys.exit(0 if count else NOTHING)


def _facts(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter for people and programs."""
    return {
        "delivery_key": letter.delivery_key.hex(),
        "state": letter.state.value,
        "platform": letter.platform.label,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "seen_at": letter.seen_at.isoformat(timespec="seconds"),
        "finished_at": letter.finished_at.isoformat(timespec="seconds"),
        "expires_at": letter.expires_at.isoformat(timespec="seconds"),
        "trace_id": letter.trace_id,
    }


def _device_facts(device: DeadLetterDevice | None) -> dict[str, Any]:
    if device is None:
        return {"device": "unknown"}
    if not device.registered:
        return {"device": "unregistered"}
    died = device.token_died_at
    return {
        "device": "its token is dead" if died else "registered",
        "token_died_at": died and died.isoformat(timespec="seconds"),
        "suspicions": device.suspicions,
        "registered_anew_since": None if device.unchanged is None else not device.unchanged,
    }


def _event_facts(event: PastEvent) -> dict[str, Any]:
    values = asdict(event) | {"time": event.time.isoformat(timespec="milliseconds")}
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}


def _table(page: list[DeadLetter]) -> Table:
    from rich.table import Table

    table = Table("delivery key", "ended", "platform", "reason", "attempts", "trace id", box=None)
    for facts in map(_facts, page):
        names = ("finished_at", "platform", "reason", "attempts", "trace_id")
        table.add_row(facts["delivery_key"][:16], *(str(facts[name] or "") for name in names))
    return table


def _facts_table(facts: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), "" if value is None else str(value))
    return table


def _events_table(events: list[PastEvent]) -> Table:
    from rich.table import Table

    names = ("time", "kind", "platform", "failure", "attempt", "count", "installation_pseudonym", "worker")
    table = Table(*(name.replace("_", " ") for name in names), box=None, title="events of its message")
    for facts in map(_event_facts, events):
        table.add_row(*(str(facts[name] or "") for name in names))
    return table


def _print(*tables: Table) -> None:
    """Print tables as wide as they are: a key or a time that somebody wants to copy is never broken."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, width=WIDE)
    for table in tables:
        console.print(table)
