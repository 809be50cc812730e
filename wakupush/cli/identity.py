"""``wakupush identity``: another key for clients, while those who know the one of before are served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wakupush.cli.loading import open_postgres
from wakupush.cli.options import AsJson
from wakupush.cli.output import print_table
from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    from wakupush.operate.identities import ServerKey
    from wakupush.protocol.identity import Identity

app = typer.Typer(help="The server's key: give clients another one, without losing a device.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(help="The file with the private key of today.")]
NewFile = Annotated[Path, typer.Argument(help="Where the new keys go; only its owner may read it.")]


@app.command()
def rotate(file: File, new_file: NewFile) -> None:
    """Write a new key, together with those of before, and print the settings that go with it."""
    from wakupush.operate import identities

    identity = identities.rotate(_read(file))
    _write(new_file, identity)
    typer.echo(
        f"{new_file} has the new key and those of before. Give it to the workers, and these settings to all processes,"
        " and let clients know the new key when all processes have them:",
        err=True,
    )
    _print_settings(identity)


@app.command()
def status(*, as_json: AsJson = False) -> None:
    """Show the server's keys, and how many devices are registered under each. It reads all registrations."""
    from wakupush.operate import identities
    from wakupush.server.engine.identity import load_identity

    with open_postgres(direct=True) as (settings, connection):
        keys = identities.keys(connection, load_identity(settings))
    if as_json:
        for key in keys:
            facts = {"public_key": key.key and str(key.key), "today": key.is_of_today, "registered": key.registered}
            typer.echo(json.dumps(facts))
    else:
        _print(keys)


@app.command()
def retire(
    file: File,
    new_file: NewFile,
    *,
    force: Annotated[bool, typer.Option("--force", help="Although devices are registered under earlier keys.")] = False,
) -> None:
    """Write the key of today without those of before, if no device is registered under these; exits with 1 if some are.

    By --force the devices under earlier keys get no push any more until they register anew.
    """
    from wakupush.operate import identities

    identity = _read(file)
    if not identity.previous:
        raise UsageError(f"{file} has one key: there is none to retire")
    with open_postgres(direct=True) as (_, connection):
        left = sum(key.registered for key in identities.keys(connection, identity) if not key.is_of_today)
    if left and not force:
        typer.echo(f"devices under earlier keys: {left}; --force leaves them without pushes", err=True)
        raise typer.Exit(1)
    identity = identities.retire(identity)
    _write(new_file, identity)
    typer.echo(
        f"{new_file} has the key of today alone. Give it to the workers, and this setting to all processes:", err=True
    )
    _print_settings(identity)


def _read(file: Path) -> Identity:
    from wakupush.protocol.identity import parse
    from wakupush.runtime import keyfile

    return keyfile.read(file, parse)


def _write(file: Path, identity: Identity) -> None:
    from wakupush.protocol.identity import to_text
    from wakupush.runtime import keyfile

    keyfile.write_text(file, to_text(identity))


def _print_settings(identity: Identity) -> None:
    typer.echo(f"WAKUPUSH_PUBLIC_KEY={identity.public_key}")
    if identity.previous:
        keys = json.dumps([str(key.public_key) for key in identity.previous])
        typer.echo(f"WAKUPUSH_PREVIOUS_PUBLIC_KEYS='{keys}'")


def _print(keys: list[ServerKey]) -> None:
    rows = []
    for key in keys:
        role = "today" if key.is_of_today else "before" if key.key else "lost: no query is told of these devices"
        rows.append((str(key.key or "?"), role, str(key.registered)))
    print_table(rows, "public key", "", "devices")
