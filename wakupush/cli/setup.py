"""Commands to set up and check a server: ``wakupush keygen``, ``migrate`` and ``doctor``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from wakupush.cli.loading import load
from wakupush.runtime.usage import UsageError

# Commands import what they need when they run, as in `wakupush.cli.cli`.
# ruff: noqa: PLC0415


def keygen(
    file: Annotated[Path, typer.Argument(help="Where the private key goes; only its owner may read it.")],
) -> None:
    """Make the server's private key, and print the public key that clients and ingest need."""
    from wakupush.protocol.keys import PrivateKey
    from wakupush.runtime import keyfile

    key = PrivateKey.generate()
    keyfile.write(file, key.secret)
    typer.echo(str(key.public_key))


def migrate(
    pre_only: Annotated[
        bool, typer.Option("--pre", help="Leave out changes that have to wait until no code of an older release runs.")
    ] = False,
) -> None:
    """Bring the Postgres schema up to date. Several may run at once."""
    from datetime import UTC, datetime

    import psycopg

    from wakupush.postgres import maintenance, roles
    from wakupush.postgres.migrations import runner
    from wakupush.runtime.connections.postgres import check_dsn

    settings = load(process="migrate")
    try:
        with psycopg.connect(check_dsn(settings.postgres), autocommit=True) as connection:
            names = runner.migrate(connection, pre_only=pre_only)
            maintenance.create_partitions(connection, datetime.now(UTC).date())
            missing_roles = roles.find_missing(connection)
    except psycopg.Error as error:
        raise UsageError(str(error)) from None
    for name in names:
        typer.echo(f"applied {name}")
    if not names:
        typer.echo("nothing to do")
    if missing_roles:
        typer.echo("for one role per process, an administrator has to run these once, and then `migrate` again:")
        for role in missing_roles:
            typer.echo(f"  CREATE ROLE {role};")


def doctor(
    autoscalers: Annotated[
        list[str] | None,
        typer.Option(
            "--autoscaler",
            help="A HorizontalPodAutoscaler to check too, in a pod that may read it; repeatable.",
        ),
    ] = None,
) -> None:
    """Check the settings, the node, gorush, Redis and Postgres; say what is wrong and what to do about it.

    Exits with 1 if the server cannot work, or a named autoscaler does not scale.
    """
    from itertools import chain

    from rich.console import Console

    from wakupush.operate.doctor import autoscalers as scaling
    from wakupush.operate.doctor.examine import examine
    from wakupush.operate.doctor.finding import Level
    from wakupush.runtime.settings import load_settings

    settings = load_settings()
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    colours = {Level.OK: "green", Level.WARNING: "yellow", Level.FAULT: "red"}
    levels = set()
    for finding in chain(examine(settings), scaling.examine(autoscalers or [])):
        levels.add(finding.level)
        console.print(f"{finding.level.value:<9}{finding.part:<10} {finding.text}", style=colours[finding.level])
    sys.exit(int(Level.FAULT in levels))
