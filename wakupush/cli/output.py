"""The output of commands: tables, and the error that ends one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

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


def print_tables(*tables: Table) -> None:
    """Print tables at their full width, so that no key or time is broken and all can be copied."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, width=WIDE)
    for table in tables:
        console.print(table)


def progress_bar(what: str) -> Progress:
    """Return a bar on standard error, disabled if that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, highlight=False)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)
