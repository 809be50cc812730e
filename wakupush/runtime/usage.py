"""How commands end when a setting, a file or an argument has to be changed first."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

#: The exit code for this.
USAGE = 2


def fail(text: str) -> NoReturn:
    """Say what to change, and end."""
    typer.echo(f"wakupush: {text}", err=True)
    sys.exit(USAGE)
