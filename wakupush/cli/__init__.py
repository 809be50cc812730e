"""The command line: ``wakupush``."""

from wakupush.cli.cli import app, main

__all__ = ["app", "main"]
