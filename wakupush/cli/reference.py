"""``wakupush import reference`` and ``wakupush export reference``: from the reference server, and back."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wakupush.cli.loading import open_postgres
from wakupush.cli.output import advancing_bar, complain, print_table
from wakupush.runtime.usage import UsageError

if TYPE_CHECKING:
    import sqlite3

    from psycopg import Connection

    from wakupush.protocol.identity import Identity
    from wakupush.runtime.settings import Settings
    from wakupush.takeover.comparing import DifferingInstallation
    from wakupush.takeover.rows import RowReport

import_app = typer.Typer(help="Take over from another server.", no_args_is_help=True)
export_app = typer.Typer(help="Hand over to another server.", no_args_is_help=True)

Password = Annotated[
    Path | None, typer.Option(help="File with the password of an encrypted database (SQLCipher), on its first line.")
]
Iterations = Annotated[
    int | None,
    typer.Option(min=1, help="How often its account hashes that password (kdfIterations); by default 3200."),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="JSON for programs: an object a line for each reported row, totals last.")
]


@import_app.command(name="reference")
def import_reference(
    path: Annotated[Path, typer.Argument(help="The reference server's database; its -wal beside it is read too.")],
    *,
    identity_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the key of push-notification-server, 64 hex digits; by default STATUS_GO_NODE_KEY."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Configuration of statusd, which holds the server's key (NodeKey).")
    ] = None,
    password_file: Password = None,
    kdf_iterations: Iterations = None,
    identity_out: Annotated[
        Path | None, typer.Option(help="File for its private key, in the form of `wakupush keygen`.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing, show what would be imported.")] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Write nothing, list the differences from our rows.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Import registrations, unregistrations and ids of handled requests from the reference server's database.

    The command only reads that database, which may be in use. Newer rows of this server stay. You may stop it at any
    time, and run it again. With --compare it exits with 1 if something differs.
    """
    from wakupush.takeover import database, identity

    if dry_run and compare:
        raise UsageError("--dry-run and --compare both write nothing: give one of them")
    if identity_file is not None and config is not None:
        raise UsageError("--identity-file and --config both name the server's key: give one of them")
    is_writing = not (dry_run or compare)
    with (
        database.open_database(path, _password(password_file), kdf_iterations or database.KDF_ITERATIONS) as reference,
        open_postgres(direct=True) as (settings, connection),
    ):
        node_key = os.environ.get(identity.NODE_KEY_VARIABLE)
        theirs = identity.their_key(reference, config=config, key_file=identity_file, node_key=node_key)
        identity.check_name(path, theirs)
        ours = identity.agree(theirs, settings, identity_out)
        if identity_out is not None and is_writing:
            identity.write(theirs, identity_out)
        if database.is_journal_missing(path):
            complain("there is no -wal beside the database: if its server was not closed, its last changes are missing")
        if compare:
            differing = _compare(reference, connection, ours, settings, as_json=as_json)
        else:
            _take(reference, connection, ours, settings, dry=dry_run, as_json=as_json)
    if compare:
        sys.exit(int(differing))


@export_app.command(name="reference")
def export_reference(
    path: Annotated[Path, typer.Argument(help="Where the database goes; only its owner may read it.")],
    *,
    password_file: Password = None,
    kdf_iterations: Iterations = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the totals as JSON.")] = False,
) -> None:
    """Write a database of the reference server with our registrations and the server's key, in the clear or encrypted.

    It prints what the database lacks, because this server does not keep it.
    """
    from wakupush.postgres import takeover
    from wakupush.server.engine.identity import load_identity
    from wakupush.takeover import database, exporting

    with open_postgres(direct=True) as (settings, connection):
        identity = load_identity(settings)
        with advancing_bar("rows", sum(takeover.count(connection))) as progress:
            totals = exporting.run(
                path,
                _password(password_file),
                connection,
                identity,
                progress,
                kdf_iterations=kdf_iterations or database.KDF_ITERATIONS,
            )
    if as_json:
        typer.echo(json.dumps(asdict(totals) | {"not_kept": exporting.NOT_KEPT}))
    else:
        _print_totals(asdict(totals))
        typer.echo("what is not in it:")
        for item in exporting.NOT_KEPT:
            typer.echo(f"- {item}")


def _take(
    reference: sqlite3.Connection,
    connection: Connection,
    identity: Identity,
    settings: Settings,
    *,
    dry: bool,
    as_json: bool,
) -> None:
    from wakupush.server.delivery.apps import app_of
    from wakupush.takeover import database, importing

    with advancing_bar("rows", sum(database.count(reference))) as progress:
        job = importing.Import(
            reference=reference,
            connection=connection,
            identity=identity,
            most_installations=settings.limits.installations_per_key,
            app_of=partial(app_of, settings=settings),
            dry=dry,
            tell=_tell_json if as_json else _tell,
            progress=progress,
        )
        result = importing.run(job)
    if not dry:
        _watch(connection, settings)
    totals = asdict(result) | {"dry_run": dry, "server": str(identity.public_key)}
    if as_json:
        typer.echo(json.dumps(totals))
    else:
        _print_totals(totals)


def _compare(
    reference: sqlite3.Connection, connection: Connection, identity: Identity, settings: Settings, *, as_json: bool
) -> bool:
    from wakupush.protocol.registration import LIMITS
    from wakupush.takeover import comparing, database

    kinds: Counter[str] = Counter()
    with advancing_bar("rows", sum(database.count(reference))) as progress:
        for step in comparing.differences(
            reference,
            connection,
            identity,
            LIMITS,
            settings.limits.installations_per_key,
        ):
            for difference in step.differences:
                kinds[difference.kind] += 1
                _tell_difference(difference, as_json=as_json)
            if step.requests_missing:
                kinds[comparing.Difference.REQUEST] += step.requests_missing
            progress(step.rows)
    if as_json:
        typer.echo(json.dumps({"differences": kinds}))
    else:
        _print_totals(kinds or {"differences": 0})
    return bool(kinds)


def _watch(connection: Connection, settings: Settings) -> None:
    from redis import RedisError

    from wakupush.runtime.connections.redis import open_redis
    from wakupush.server.registration import loading

    try:
        with closing(open_redis(settings.redis)) as redis:
            loading.watch(connection, redis)
    except RedisError:
        complain(
            "Redis does not answer, so perhaps ingest does not watch the query topics of all users."
            " Run it again with WAKUPUSH_REDIS__URL, or restart Redis"
        )


def _password(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        password = file.read_text().partition("\n")[0].removesuffix("\r")
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{file} cannot be read") from None
    if not password or "\0" in password:
        raise UsageError(f"{file} holds no password")
    return password


def _tell(report: RowReport) -> None:
    verb = "taken all the same" if report.taken else "refused"
    typer.echo(f"{report.reason}: {_name(report.key_hash, report.installation_id)} (row {report.rowid}), {verb}")


def _tell_json(report: RowReport) -> None:
    typer.echo(json.dumps(asdict(report)))


def _tell_difference(difference: DifferingInstallation, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(difference)))
    else:
        details = f": {', '.join(difference.details)}" if difference.details else ""
        typer.echo(f"{difference.kind}: {_name(difference.key_hash, difference.installation_id)}{details}")


def _name(key_hash: str | None, installation_id: str | None) -> str:
    """Return a name of an installation to print. A stranger chose its id, which can contain any characters."""
    user = f"user {key_hash[:16]}…" if key_hash else "no user"
    return f"{user}, installation {ascii(installation_id)[1:-1] if installation_id else 'without an id'}"


def _print_totals(totals: Any) -> None:
    rows = []
    for name, value in totals.items():
        for of, count in value.items() if isinstance(value, dict) else [("", value)]:
            rows.append((f"{name} {of}".strip().replace("_", " "), str(count)))
    print_table(rows)
