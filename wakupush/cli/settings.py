"""``wakupush settings``: the settings in effect, and what they mean."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from wakupush.cli.options import AsJson
from wakupush.cli.output import print_table
from wakupush.runtime.usage import UsageError


def settings(
    *,
    docs: Annotated[str | None, typer.Option("--docs", help="Say what one setting means.", metavar="NAME")] = None,
    only_set: Annotated[bool, typer.Option("--set", help="Leave out those that have their default.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the settings in effect, without secrets, and where each comes from; complain about those that are wrong."""
    from wakupush.operate.settings import documentation, effective

    if docs is not None:
        setting = documentation(docs)
        if setting is None:
            raise UsageError(f"there is no setting {docs!r}; `wakupush settings` lists all")
        typer.echo(f"{setting.variable}\n  {setting.meaning}\n  Default: {json.dumps(setting.value)}")
        return
    settings = [each for each in effective() if each.source != "default" or not only_set]
    if as_json:
        for each in settings:
            typer.echo(json.dumps(asdict(each)))
        return
    rows = [(each.variable, json.dumps(each.value), each.source) for each in settings]
    print_table(rows, "variable", "value", "from")
