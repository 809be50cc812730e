"""Loading the settings of a command that runs as a process of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wakupush.runtime.usage import fail

if TYPE_CHECKING:
    from wakupush.runtime.settings import Settings

# Commands import what they need when they run, as in `wakupush.cli.cli`.
# ruff: noqa: PLC0415


def load(process: str) -> Settings:
    """Read the settings and configure the logs."""
    from wakupush.runtime.logging import configure
    from wakupush.runtime.settings import SettingsError, load_settings

    try:
        settings = load_settings()
    except SettingsError as error:
        fail(str(error))
    configure(settings, process=process)
    return settings
