"""The output of commands: tables, and the error that ends one."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import typer
from typer.core import TyperGroup

from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.progress import Progress

#: Modules of the extra ``server``: what a command imports of them is missing where the SDK alone is installed.
OF_SERVER: Final = {
    *("billiard", "celery", "httpx2", "kombu", "prometheus_client", "psycopg", "psycopg_pool"),
    *("pycurl", "pydantic_settings", "redis", "structlog"),
}
#: The exit code if a setting, a file or an argument has to be changed first.
USAGE: Final = 2
#: Columns of a terminal that is wide enough for every table.
WIDE: Final = 1000


class Commands(TyperGroup):
    """A group whose commands end with a sentence, and with 2, if they raise a `UsageError` or an extra is missing."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            complain(str(error))
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in OF_SERVER:
                raise
            complain(f"{error.name} is not installed: install wakupush[server]")
        sys.exit(USAGE)


def complain(text: str) -> None:
    """Print a problem on standard error."""
    typer.echo(f"wakupush: {text}", err=True)


def print_table(
    rows: Iterable[Iterable[str]],
    *headings: str,
    title: str | None = None,
    title_justify: Literal["left", "center"] = "center",
) -> None:
    """Print a table at its full width, so that no key or time is broken and all can be copied."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*headings, title=title, title_justify=title_justify, show_header=bool(headings), box=None)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False, width=WIDE).print(table)


def progress_bar(what: str) -> Progress:
    """Return a bar on standard error, disabled if that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


@contextmanager
def advancing_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show such a bar for so many steps; gives the function that advances it by some."""
    with progress_bar(what) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps: bar.advance(task, steps)
