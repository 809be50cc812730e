"""Code shared by ``dead-letters`` and ``quarantine``: their rows are selected, shown and changed alike."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from wakupush.runtime.durations import MOST_DAYS, parse_duration
from wakupush.runtime.usage import fail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from psycopg import Connection
    from rich.table import Table

    from wakupush.model.dead_letters import PastEvent, Position
    from wakupush.runtime.settings import Settings

# Commands import what they need when they run, as in `wakupush.cli.cli`.
# ruff: noqa: PLC0415

T = TypeVar("T")

#: Exit code if nothing matched.
NOTHING = 1
#: Columns of a terminal that is wide enough for every table.
WIDE = 1000
#: A change of more rows shows its progress.
PROGRESS_ROWS = 1000

OlderThan = Annotated[str | None, typer.Option(help="Only those that ended longer ago than this: 45s, 90m, 2h, 3d.")]
NewerThan = Annotated[str | None, typer.Option(help="Only those that ended within this time: 45s, 90m, 2h, 3d.")]
All = Annotated[bool, typer.Option("--all", help="All that the other options select.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON for programs.")]
Limit = Annotated[int, typer.Option(help="Rows at most.", min=1)]


@dataclass(frozen=True, slots=True)
class RowNames:
    """What rows are called."""

    one: str
    several: str
    #: What names one: 32 bytes, in hex.
    key: str


@contextmanager
def database() -> Iterator[tuple[Settings, Connection]]:
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
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        fail("the database has no schema yet, or an old one: run `wakupush migrate`")
    except psycopg.OperationalError as error:
        fail(f"the database at WAKUPUSH_POSTGRES__DSN does not answer: {reason(error)}")
    except psycopg.Error as error:
        fail(f"the database at WAKUPUSH_POSTGRES__DSN answers with {type(error).__name__}; see `wakupush doctor`")


def between(now: datetime, newer_than: str | None, older_than: str | None) -> tuple[datetime | None, datetime]:
    """Return the time range in which the selected rows ended; rows that end from now on are left out."""
    since = now - _age(newer_than, "--newer-than") if newer_than else None
    return since, now - _age(older_than, "--older-than") if older_than else now


def _age(text: str, option: str) -> timedelta:
    try:
        return timedelta(seconds=parse_duration(text))
    except ValueError:
        fail(f"{option} is a number and a unit, such as 45s, 90m, 2h or 3d, up to {MOST_DAYS} days")


def named(kind: RowNames, keys: list[str] | None, *, every: bool) -> list[str]:
    """Return the given keys, none with ``--all``. One of the two is required: never change everything by mistake."""
    if keys and every:
        fail(f"name the keys of {kind.several} or --all, not both")
    if not keys and not every:
        fail(f"name the keys of {kind.several}, or --all for all that the other options select")
    return keys or []


def find(kind: RowNames, prefixes: list[str], matches: Callable[[str], list[bytes]]) -> list[bytes]:
    """Return the existing keys that begin with these prefixes; refuse a prefix of several keys."""
    found = []
    for prefix in prefixes:
        if not re.fullmatch(r"[0-9a-fA-F]{1,64}", prefix):
            fail(f"a {kind.key} is 64 hex digits, or the first of them")
        those = matches(prefix.lower())
        if len(those) > 1:
            fail(f"several {kind.several} begin with {prefix}")
        found += those
    return found


def change(
    kind: RowNames,
    total: int,
    step: Callable[[Position | None], Sequence[Position]],
    *,
    ask: bool,
    verb: str,
    done: str,
) -> NoReturn:
    """Change the selected rows in chunks, each with its own commit; print how many there were and exit."""
    from rich.console import Console
    from rich.progress import Progress

    if total and ask:
        typer.confirm(f"{verb} {total} {kind.several}?", abort=True, err=True)
    changed, last = 0, None
    with Progress(console=Console(stderr=True), disable=total <= PROGRESS_ROWS) as progress:
        task = progress.add_task(done, total=total)
        while chunk := step(last):
            changed += len(chunk)
            last = chunk[-1]
            progress.update(task, completed=changed)
    end(kind, changed, done)


def end(kind: RowNames, count: int, done: str) -> NoReturn:
    """Print how many rows there were, and exit."""
    typer.echo(f"{count} {kind.several} {done}" if count else f"no {kind.one} matched", err=not count)
    sys.exit(0 if count else NOTHING)


def print_pages(
    kind: RowNames,
    pages: Iterable[list[T]],
    *,
    limit: int,
    as_json: bool,
    facts: Callable[[T], dict[str, Any]],
    table: Callable[[list[T]], Table],
) -> NoReturn:
    """Print rows, page after page, and exit; JSON is one object a line."""
    shown = 0
    for page in pages:
        shown += len(page)
        if as_json:
            for row in page:
                typer.echo(json.dumps(facts(row)))
        else:
            print_tables(table(page))
    if not as_json and shown == limit:
        typer.echo(f"{shown} shown; --limit shows more")
    if not shown:
        end(kind, 0, "shown")
    sys.exit(0)


def print_one(facts: dict[str, Any], events: list[PastEvent], *, as_json: bool) -> None:
    """Print all that is known of a row, and the events of its message."""
    if as_json:
        typer.echo(json.dumps(facts | {"events": [_event_facts(event) for event in events]}))
    else:
        print_tables(_facts_table(facts), _events_table(events))


def _event_facts(event: PastEvent) -> dict[str, Any]:
    values = asdict(event) | {"time": event.time.isoformat(timespec="milliseconds")}
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}


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


def print_tables(*tables: Table) -> None:
    """Print tables at their full width, so that no key or time is broken and all can be copied."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, width=WIDE)
    for table in tables:
        console.print(table)


def seconds(time: datetime | None) -> str | None:
    """Return a time for people and programs."""
    return None if time is None else time.isoformat(timespec="seconds")
