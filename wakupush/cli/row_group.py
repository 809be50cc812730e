"""A group of commands for rows that an operator lists, inspects, has handled again and drops."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Generic, NoReturn, Protocol, TypeVar

import typer

from wakupush.cli.loading import open_postgres
from wakupush.cli.options import AsJson, Yes, duration
from wakupush.cli.output import print_table
from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from psycopg import Connection

    from wakupush.model.dead_letters import DeadLetter, PastEvent, Position, Selection
    from wakupush.model.quarantine import QuarantinedMessage, QuarantineSelection
    from wakupush.runtime.settings import Settings

#: Exit code if nothing matched.
NOTHING = 1
#: A change of more rows shows its progress.
PROGRESS_ROWS = 1000

OlderThan = Annotated[str | None, typer.Option(help="Only those that ended longer ago than this: 45s, 90m, 2h, 3d.")]
NewerThan = Annotated[str | None, typer.Option(help="Only those that ended within this time: 45s, 90m, 2h, 3d.")]
All = Annotated[bool, typer.Option("--all", help="All rows that the other options select.")]
Limit = Annotated[int, typer.Option(help="Most rows to list.", min=1)]


R = TypeVar("R", bound="DeadLetter | QuarantinedMessage")
S = TypeVar("S", bound="Selection | QuarantineSelection")
S_contra = TypeVar("S_contra", bound="Selection | QuarantineSelection", contravariant=True)


class RowTable(Protocol[R, S_contra]):
    """A module of `wakupush.postgres` with the statements for rows."""

    def every(self, connection: Connection, selection: S_contra, most: int, /) -> Iterator[list[R]]:
        """Read the newest rows in pages, so many in all."""

    def count(self, connection: Connection, selection: S_contra, /) -> int:
        """Return how many rows there are."""

    def find(self, connection: Connection, prefix: str, /) -> list[bytes]:
        """Return the keys with this prefix (hex digits), two at most."""

    def drop(self, connection: Connection, selection: S_contra, after: Position | None, /) -> list[Position]:
        """Delete the next rows."""


#: Changes the next rows after a position, and returns the positions of these.
Step = Callable[["Position | None"], "Sequence[Position]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Generic[R, S]):
    """The words and functions in which one group of commands differs from the others."""

    help: str
    #: The words for one row and for several.
    one: str
    several: str
    #: The name of a row: 32 bytes, in hex. The fact of this name comes first in tables.
    key: str
    keys: str
    #: The options ``reason`` and ``choice`` with their types, for Typer.
    options: dict[str, Any]
    events: str
    retry_help: str
    drop_help: str
    #: The words for a retry in its question, and in its result.
    retry_verb: str
    retry_outcome: str
    #: Headings of a table and their facts.
    columns: dict[str, str]
    facts: Callable[[R], dict[str, Any]]
    #: Facts that take another statement.
    more_facts: Callable[[Connection, R], dict[str, Any]]
    store: Callable[[], RowTable[R, S]]
    #: Makes a selection of `reason`, `choice`, `since` and `until`.
    select: Callable[..., S]
    retry: Callable[[Settings, Connection, S], AbstractContextManager[Step]]


def group(rows: Rows[R, S]) -> typer.Typer:
    """Return the commands ``list``, ``show``, ``retry`` and ``drop`` for rows."""
    app = typer.Typer(help=rows.help, no_args_is_help=True)
    name, names = rows.key.capitalize(), rows.keys.capitalize()
    types = rows.options | {
        "key": Annotated[str, typer.Argument(help=f"{name} in hex, or a unique prefix.")],
        "keys": Annotated[list[str] | None, typer.Argument(help=f"{names} in hex, or unique prefixes.")],
    }

    def list_(
        *,
        choice: str | None = None,
        reason: str | None = None,
        older_than: OlderThan = None,
        newer_than: NewerThan = None,
        limit: Limit = 50,
        as_json: AsJson = False,
    ) -> None:
        with open_postgres() as (_, connection):
            selection = _select(
                rows, connection, choice=choice, reason=reason, newer_than=newer_than, older_than=older_than
            )
            _print_pages(rows, rows.store().every(connection, selection, limit), limit=limit, as_json=as_json)

    def show(key: str, as_json: AsJson = False) -> None:
        from wakupush.operate.past_events import past_events

        with open_postgres() as (settings, connection):
            keys = _find(rows, connection, [key])
            selection = replace(rows.select(reason=None, choice=None, since=None, until=None), keys=keys)
            pages = list(rows.store().every(connection, selection, 1)) if keys else []
            if not pages:
                _end(rows, 0, "shown")
            [[row]] = pages
            facts = rows.facts(row) | rows.more_facts(connection, row)
            events = past_events(settings, connection, row.trace_id, row.seen_at)
        _print_one(facts, events or [], as_json=as_json)
        if events is None:
            typer.echo("its events are shown where the server's key is: set WAKUPUSH_IDENTITY_KEY_FILE", err=True)

    def changing(
        begin: Callable[[Settings, Connection, S], AbstractContextManager[Step]], verb: str, outcome: str
    ) -> Callable[..., None]:
        def change(
            keys: list[str] | None = None,
            *,
            choice: str | None = None,
            reason: str | None = None,
            older_than: OlderThan = None,
            newer_than: NewerThan = None,
            every: All = False,
            yes: Yes = False,
        ) -> None:
            with open_postgres() as (settings, connection):
                selection = _select(
                    rows, connection, choice=choice, reason=reason, newer_than=newer_than, older_than=older_than
                )
                selection = _choose(rows, connection, selection, keys, every=every)
                total = rows.store().count(connection, selection)
                with begin(settings, connection, selection) as step:
                    _change(rows, total, step, ask=every and not yes, verb=verb, outcome=outcome)

        return change

    def drop(_: Settings, connection: Connection, selection: S) -> AbstractContextManager[Step]:
        return nullcontext(partial(rows.store().drop, connection, selection))

    commands: dict[str, tuple[Callable[..., None], str]] = {
        "list": (list_, f"List {rows.several}, the newest first; with --json one object a line."),
        "show": (show, f"Show everything known about a {rows.one}, except secrets, and {rows.events}."),
        "retry": (changing(rows.retry, rows.retry_verb, rows.retry_outcome), rows.retry_help),
        "drop": (changing(drop, "delete", "deleted"), rows.drop_help),
    }
    for command_name, (command, text) in commands.items():
        command.__annotations__ |= {option: types[option] for option in types.keys() & command.__annotations__.keys()}
        app.command(name=command_name, help=text)(command)
    return app


def _select(
    rows: Rows[R, S],
    connection: Connection,
    *,
    choice: str | None,
    reason: str | None,
    newer_than: str | None,
    older_than: str | None,
) -> S:
    """Return the selection of the options, without rows that end from now on."""
    from wakupush.postgres import dead_letters

    now = dead_letters.now(connection)
    since = now - timedelta(seconds=duration(newer_than, "--newer-than")) if newer_than else None
    until = now - timedelta(seconds=duration(older_than, "--older-than")) if older_than else now
    return rows.select(reason=reason, choice=choice, since=since, until=until)


def _choose(rows: Rows[R, S], connection: Connection, selection: S, keys: list[str] | None, *, every: bool) -> S:
    """Return the rows to change: those with the given keys, or with ``--all`` those that the options select.

    One of the two is required: never change everything by mistake.
    """
    if keys and every:
        raise UsageError(f"name the keys of {rows.several} or --all, not both")
    if not keys and not every:
        raise UsageError(f"name the keys of {rows.several}, or --all for all that the other options select")
    return replace(selection, keys=_find(rows, connection, keys)) if keys else selection


def _find(rows: Rows[R, S], connection: Connection, prefixes: list[str]) -> list[bytes]:
    """Return the existing keys that begin with these prefixes; refuse a prefix of several keys."""
    keys = []
    for prefix in prefixes:
        if not re.fullmatch(r"[0-9a-fA-F]{1,64}", prefix):
            raise UsageError(f"a {rows.key} is 64 hex digits, or the first of them")
        matches = rows.store().find(connection, prefix.lower())
        if len(matches) > 1:
            raise UsageError(f"several {rows.several} begin with {prefix}")
        keys += matches
    return keys


def _change(rows: Rows[R, S], total: int, step: Step, *, ask: bool, verb: str, outcome: str) -> NoReturn:
    """Change the selected rows in chunks, each with its own commit; print how many there were and exit."""
    from rich.console import Console
    from rich.progress import Progress

    if total and ask:
        typer.confirm(f"{verb} {total} {rows.several}?", abort=True, err=True)
    count, last = 0, None
    with Progress(console=Console(stderr=True), disable=total <= PROGRESS_ROWS) as progress:
        task = progress.add_task(outcome, total=total)
        while chunk := step(last):
            count += len(chunk)
            last = chunk[-1]
            progress.update(task, completed=count)
    _end(rows, count, outcome)


def _end(rows: Rows[R, S], count: int, outcome: str) -> NoReturn:
    typer.echo(f"{count} {rows.several} {outcome}" if count else f"no {rows.one} matched", err=not count)
    sys.exit(0 if count else NOTHING)


def _print_pages(rows: Rows[R, S], pages: Iterator[list[R]], *, limit: int, as_json: bool) -> NoReturn:
    count = 0
    for page in pages:
        count += len(page)
        if as_json:
            for row in page:
                typer.echo(json.dumps(rows.facts(row)))
        else:
            _print_page(rows, page)
    if not as_json and count == limit:
        typer.echo(f"{count} shown; --limit shows more")
    if not count:
        _end(rows, 0, "shown")
    sys.exit(0)


def _print_one(facts: dict[str, Any], events: list[PastEvent], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(facts | {"events": [_event_facts(event) for event in events]}))
    else:
        print_table((name.replace("_", " "), "" if value is None else str(value)) for name, value in facts.items())
        _print_events(events)


def _event_facts(event: PastEvent) -> dict[str, Any]:
    values = asdict(event) | {"time": event.time.isoformat(timespec="milliseconds")}
    return {name: value.hex() if isinstance(value, bytes) else value for name, value in values.items()}


def _print_page(rows: Rows[R, S], page: list[R]) -> None:
    lines = []
    for facts in map(rows.facts, page):
        key = facts[rows.key.replace(" ", "_")]
        lines.append((key[:16], *(str(facts[name] or "") for name in rows.columns.values())))
    print_table(lines, rows.key, *rows.columns)


def _print_events(events: list[PastEvent]) -> None:
    names = ("time", "kind", "app", "platform", "failure", "attempt", "count", "installation_pseudonym", "worker")
    lines = [[str(facts[name] or "") for name in names] for facts in map(_event_facts, events)]
    print_table(lines, *(name.replace("_", " ") for name in names), title="events of its message")


def time_text(time: datetime | None) -> str | None:
    """Return a time for people and programs, to the second."""
    return None if time is None else time.isoformat(timespec="seconds")
