"""Commands to set up and check a server: ``wakupush keygen``, ``public-key``, ``migrate``, ``profile``, ``doctor``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from wakupush.cli.loading import load
from wakupush.cli.options import AsJson
from wakupush.runtime.usage import UsageError


def keygen(
    file: Annotated[Path, typer.Argument(help="Where the private key goes; only its owner may read it.")],
) -> None:
    """Make the server's private key, and print the public key that clients and ingest need."""
    from wakupush.protocol.keys import PrivateKey
    from wakupush.runtime import keyfile

    key = PrivateKey.generate()
    keyfile.write(file, key.secret)
    typer.echo(str(key.public_key))


def public_key(file: Annotated[Path, typer.Argument(help="The file with the private key.")]) -> None:
    """Print the public key of a private key."""
    from wakupush.protocol.identity import parse
    from wakupush.runtime import keyfile

    typer.echo(str(keyfile.read(file, parse).public_key))


def migrate(
    pre_only: Annotated[
        bool, typer.Option("--pre", help="Leave out changes that have to wait until no code of an older release runs.")
    ] = False,
    logins: Annotated[
        bool,
        typer.Option(help="Let each role log in with the password in its variable, such as POSTGRES_QUERY_PASSWORD."),
    ] = False,
) -> None:
    """Bring the Postgres schema up to date. Several may run at once."""
    import os
    from datetime import UTC, datetime
    from functools import partial

    import psycopg

    from wakupush.model.roles import Role
    from wakupush.postgres import maintenance, roles
    from wakupush.postgres.migrations import runner
    from wakupush.runtime.connections.postgres import check_dsn, refuse_pooler

    settings = load(process="migrate")
    variables = {role: f"POSTGRES_{role.name}_PASSWORD" for role in Role}
    passwords = {role: os.environ[name] for role, name in variables.items() if logins and os.environ.get(name)}
    if logins and not passwords:
        raise UsageError(f"--logins: no password is given; the variables are {', '.join(variables.values())}")
    try:
        with psycopg.connect(check_dsn(settings.postgres, direct=True), autocommit=True) as connection:
            refuse_pooler(connection)
            names = runner.migrate(connection, pre_only=pre_only)
            make = partial(maintenance.create_partitions, connection, datetime.now(UTC).date())
            runner.wait_for_locks(connection, "making partitions", make)
            roles.let_log_in(connection, passwords)
            missing_roles = roles.find_missing(connection)
            missing_timeouts = roles.set_timeouts(connection, settings.postgres.statement_timeout)
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
    if missing_timeouts and settings.postgres.direct_dsn is not None:
        typer.echo("for time-outs behind the pooler, an administrator has to run these:")
        for statement in missing_timeouts:
            typer.echo(f"  {statement};")


def profile(
    name: Annotated[
        str | None,
        typer.Argument(help="Built in, or of the file of settings; by default the one that the server uses."),
    ] = None,
) -> None:
    """Print what gorush gets for each type of notification on each platform, with values that are made up."""
    import json

    from wakupush.gorush.profiles import load_profile
    from wakupush.model.notifications import NotificationType
    from wakupush.model.platforms import Platform
    from wakupush.operate.samples import sample, target
    from wakupush.runtime.settings import load_settings

    settings = load_settings()
    try:
        chosen = load_profile(settings, name or settings.gorush.dialect)
    except KeyError:
        names = ", ".join(settings.profile_names)
        raise UsageError(f"there is no such profile; there are {names}") from None
    notifications: dict[str, dict[str, object]] = {}
    for kind in NotificationType:
        for platform in Platform:
            device = target(platform, "a device token", "org.example.app")
            made_up = sample(settings, chosen, kind, device, bytes(32))
            notifications.setdefault(kind.label, {})[platform.label] = made_up.to_json()
    typer.echo(json.dumps(notifications, indent=2, ensure_ascii=False))


def doctor(
    autoscalers: Annotated[
        list[str] | None,
        typer.Option(
            "--autoscaler",
            help="A HorizontalPodAutoscaler to check too, in a pod that may read it; repeatable.",
        ),
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(
            help="Connections to Postgres that all processes open at most; one process each by default.", min=1
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check the settings, the node, gorush, Redis and Postgres; say what is wrong and what to do about it.

    Exits with 1 if the server cannot work, or a named autoscaler does not scale.
    """
    import json
    from collections import Counter
    from itertools import chain

    from rich.console import Console

    from wakupush.operate import autoscalers as scaling
    from wakupush.operate.doctor import examine
    from wakupush.operate.finding import Level
    from wakupush.runtime.settings import load_settings

    settings = load_settings()
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    colours = {Level.OK: "green", Level.WARNING: "yellow", Level.FAULT: "red"}
    levels: Counter[Level] = Counter()
    for finding in chain(examine(settings, connections), scaling.examine(autoscalers or [])):
        levels[finding.level] += 1
        if as_json:
            typer.echo(json.dumps({"level": finding.level.value, "part": finding.part, "text": finding.text}))
        else:
            console.print(f"{finding.level.value:<9}{finding.part:<10} {finding.text}", style=colours[finding.level])
    if not as_json:
        console.print(f"{levels[Level.OK]} ok, {levels[Level.WARNING]} warnings, {levels[Level.FAULT]} faults")
    sys.exit(int(Level.FAULT in levels))
