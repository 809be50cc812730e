"""What commands say: tables, and the error that ends one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.core import TyperGroup

from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    from rich.table import Table

#: The exit code if a setting, a file or an argument has to be changed first.
USAGE: Final = 2
#: Columns of a terminal that is wide enough for every table.
WIDE: Final = 1000


class Commands(TyperGroup):
    """A group whose commands end with the text of a `UsageError`, and with 2, if they raise one."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            complain(str(error))
            sys.exit(USAGE)


def complain(text: str) -> None:
    """Say on standard error what is wrong."""
    typer.echo(f"wakupush: {text}", err=True)


def print_tables(*tables: Table) -> None:
    """Print tables at their full width, so that no key or time is broken and all can be copied."""
    from rich.console import Console  # noqa: PLC0415 - commands import what they need when they run

    console = Console(highlight=False, markup=False, width=WIDE)
    for table in tables:
        console.print(table)
