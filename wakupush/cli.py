"""The command line: ``wakupush``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wakupush.cli_client import app as client_app
from wakupush.cli_dead_letters import app as dead_letters_app
from wakupush.cli_pipeline import app as pipeline_app
from wakupush.cli_quarantine import app as quarantine_app
from wakupush.cli_reference import export_app, import_app
from wakupush.cli_shadow import app as shadow_app
from wakupush.runtime.usage import fail as _fail

if TYPE_CHECKING:
    from wakupush.runtime.settings import Settings

# Commands import what they need when they run: `wakupush keygen` starts without Celery, and the counters of a worker's
# processes need their directory before prometheus_client is imported.
# ruff: noqa: PLC0415

app = typer.Typer(
    help="The push notification server for messengers on Waku.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
ingest_app = typer.Typer(help="Pull messages from Waku onto the Redis queues.", no_args_is_help=True)
app.add_typer(ingest_app, name="ingest")
app.add_typer(client_app, name="client")
app.add_typer(dead_letters_app, name="dead-letters")
app.add_typer(export_app, name="export")
app.add_typer(import_app, name="import")
app.add_typer(pipeline_app, name="pipeline")
app.add_typer(quarantine_app, name="quarantine")
app.add_typer(shadow_app, name="shadow")

#: In a checkout.
RECORDING = Path(__file__).parent.parent / "tests" / "vectors" / "scenario_client_flow.json"


def main() -> None:
    """Run the command line."""
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(130)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"wakupush {version('wakupush')}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The push notification server for messengers on Waku."""


@app.command()
def keygen(
    file: Annotated[Path, typer.Argument(help="Where the private key goes; only its owner may read it.")],
) -> None:
    """Make the server's private key, and print the public key that clients and ingest need."""
    from wakupush.protocol.keys import PrivateKey
    from wakupush.runtime import keyfile

    try:
        key = PrivateKey.generate()
        keyfile.write(file, key.secret)
    except keyfile.KeyFileError as error:
        _fail(str(error))
    typer.echo(str(key.public_key))


@app.command()
def migrate(
    pre_only: Annotated[
        bool, typer.Option("--pre", help="Leave out what has to wait until no code of an older release runs.")
    ] = False,
) -> None:
    """Bring the Postgres schema up to date; safe when several start at once."""
    from datetime import UTC, datetime

    import psycopg

    from wakupush.postgres import maintenance, roles
    from wakupush.postgres.migrations import runner
    from wakupush.runtime.connections.postgres import check_dsn
    from wakupush.runtime.settings import SettingsError

    settings = _settings(process="migrate")
    try:
        with psycopg.connect(check_dsn(settings.postgres), autocommit=True) as connection:
            applied = runner.migrate(connection, pre_only=pre_only)
            maintenance.create_partitions(connection, datetime.now(UTC).date())
            missing = roles.missing(connection)
    except (SettingsError, psycopg.Error, runner.ChangedMigrationError) as error:
        _fail(str(error))
    for name in applied:
        typer.echo(f"applied {name}")
    if not applied:
        typer.echo("nothing to do")
    if missing:
        typer.echo("for a role of each process, an administrator has to make these once, and `migrate` to run again:")
        for role in missing:
            typer.echo(f"  CREATE ROLE {role};")


@ingest_app.command()
def live() -> None:
    """Poll the relay of the Waku node and enqueue what is for this server."""
    from ingest.live.process import run
    from wakupush.runtime.settings import SettingsError

    try:
        run(_settings(process="ingest live"))
    except SettingsError as error:
        _fail(str(error))


@ingest_app.command()
def reconcile(
    once: Annotated[bool, typer.Option("--once", help="Walk each Store once, say what was found, and end.")] = False,
    since: Annotated[
        str | None,
        typer.Option(
            help="With --once: from when on, as 90s, 30m, 2h, 1d or an ISO time (UTC); else the whole window."
        ),
    ] = None,
) -> None:
    """Walk the Stores of nodes and enqueue what was missed.

    With --once it exits with 1 if a Store was not walked to its end.
    """
    import time

    from ingest.reconcile import once as reconcile_once
    from ingest.reconcile import process as reconciling
    from wakupush.runtime.durations import parse_since
    from wakupush.runtime.settings import SettingsError

    if since is not None and not once:
        _fail("--since needs --once")
    try:
        start = None if since is None else parse_since(since, time.time())
    except ValueError:
        _fail("--since is a duration like 90s, 30m, 2h or 1d, or a time like 2026-11-21T04:00")
    settings = _settings(process="ingest reconcile")
    try:
        if once:
            sys.exit(reconcile_once.run(settings, start))
        reconciling.run(settings)
    except SettingsError as error:
        _fail(str(error))


@app.command()
def worker(
    pool: Annotated[str, typer.Argument(help="registration, query or dispatch.")],
    concurrency: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
) -> None:
    """Handle the messages of a queue."""
    settings = _settings(process=f"worker {pool}")
    if settings.worker.http_port >= 0:
        from workers.metrics_directory import metrics_directory

        with metrics_directory():
            _worker(settings, pool, concurrency)
    else:
        _worker(settings, pool, concurrency)


def _worker(settings: Settings, pool: str, concurrency: int) -> None:
    from wakupush.model.queues import QUEUES
    from wakupush.runtime.settings import SettingsError
    from wakupush.server.identity import NoIdentityError
    from workers import run

    if pool not in QUEUES:
        _fail(f"there is no pool {pool!r}; there are {', '.join(QUEUES)}")
    try:
        run.worker(settings, QUEUES[pool], concurrency)
    except (NoIdentityError, SettingsError) as error:
        _fail(str(error))


@app.command()
def beat() -> None:
    """Run the schedule: overdue answers, due deliveries, watched topics, pruning."""
    from wakupush.runtime.settings import SettingsError
    from workers import run

    try:
        run.beat(_settings(process="beat"))
    except SettingsError as error:
        _fail(str(error))


@app.command()
def exporter() -> None:
    """Show what waits in the queues and in Postgres, for Prometheus and for autoscaling."""
    from wakupush.runtime.settings import SettingsError
    from workers import exporter as process

    try:
        process.run(_settings(process="exporter"))
    except SettingsError as error:
        _fail(str(error))


@app.command()
def feedback() -> None:
    """Receive gorush's feedback webhook."""
    from wakupush.runtime.settings import SettingsError
    from workers import feedback as receiver

    try:
        receiver.run(_settings(process="feedback"))
    except SettingsError as error:
        _fail(str(error))


@app.command()
def doctor(
    autoscalers: Annotated[
        list[str] | None,
        typer.Option(
            "--autoscaler",
            help="A HorizontalPodAutoscaler to look at too, in a pod that may get it; several are allowed.",
        ),
    ] = None,
) -> None:
    """Look at the settings, the node, gorush, Redis and Postgres; say what is wrong and what to do about it.

    Exits with 1 if the server cannot work, or an autoscaler that is named does not scale.
    """
    from itertools import chain

    from rich.console import Console

    from wakupush.doctor import autoscalers as scaling
    from wakupush.doctor.examine import examine
    from wakupush.doctor.finding import Level
    from wakupush.runtime.settings import SettingsError, load_settings

    try:
        settings = load_settings()
    except SettingsError as error:
        _fail(str(error))
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    colours = {Level.OK: "green", Level.WARNING: "yellow", Level.FAULT: "red"}
    levels = set()
    for finding in chain(examine(settings), scaling.examine(autoscalers or [])):
        levels.add(finding.level)
        console.print(f"{finding.level.value:<9}{finding.part:<10} {finding.text}", style=colours[finding.level])
    sys.exit(int(Level.FAULT in levels))


@app.command()
def demo(
    recording: Annotated[
        Path | None, typer.Option(help="A recorded conversation to play; the repository's unless given.")
    ] = None,
) -> None:
    """Run the whole server on embedded parts, send it messages, and show what happens."""
    from wakupush import devnet

    if missing := devnet.missing_parts():
        _fail(f"the demo needs {', '.join(missing)}: install wakupush[devnet]")
    from wakupush.devnet import demo as devnet_demo

    if recording is None and RECORDING.exists():
        recording = RECORDING
    sys.exit(devnet_demo.run(recording))


@app.command()
def dev(
    waku_url: Annotated[str | None, typer.Option(help="REST API of a Waku node.")] = None,
    gorush_url: Annotated[str | None, typer.Option(help="URL of gorush.")] = None,
    postgres_dsn: Annotated[str | None, typer.Option(help="Connection string of a Postgres database.")] = None,
    redis_url: Annotated[str | None, typer.Option(help="URL of a Redis database.")] = None,
    identity_key: Annotated[
        Path | None,
        typer.Option(help="File with the server's private key; that of the settings, or a new key, unless given."),
    ] = None,
) -> None:
    """Run the whole server in the foreground until Ctrl-C, on embedded parts unless told otherwise.

    The settings of the environment hold, but for addresses and ports.
    """
    from wakupush import devnet
    from wakupush.protocol.keys import PrivateKey
    from wakupush.runtime import keyfile
    from wakupush.runtime.settings import SettingsError, load_settings
    from wakupush.server.identity import NoIdentityError, load_identity

    if missing := devnet.missing_parts():
        _fail(f"dev needs {', '.join(missing)}: install wakupush[devnet]")
    from wakupush.devnet import dev as devnet_dev
    from wakupush.devnet.stack import External

    try:
        settings = load_settings()
        key = None
        if identity_key:
            key = keyfile.read(identity_key, PrivateKey)
        elif settings.identity_key or settings.identity_key_file:
            key = load_identity(settings).private_key
    except (SettingsError, keyfile.KeyFileError, NoIdentityError) as error:
        _fail(str(error))
    external = External(waku_url=waku_url, gorush_url=gorush_url, postgres_dsn=postgres_dsn, redis_url=redis_url)
    sys.exit(devnet_dev.run(external, key, settings))


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="A scenario of the vectors, or Waku messages as JSON lines.")],
    waku_url: Annotated[str, typer.Option(help="REST API of a Waku node; it must be subscribed to the shards.")],
    limit: Annotated[
        int | None,
        typer.Option(help="Recorded messages at most; one that a scenario sends several times counts once.", min=1),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Messages per second at most.", min=0.001)] = None,
    restamp: Annotated[
        bool, typer.Option("--restamp", help="Give each message the present time: nodes archive only fresh ones.")
    ] = False,
) -> None:
    """Publish recorded messages into a node, in order.

    Exits with 1 if the node did not take all of them.
    """
    from wakupush.devnet import replay as devnet_replay

    try:
        code = devnet_replay.run(file, waku_url, limit=limit, rate=rate, restamp=restamp)
    except devnet_replay.ReplayError as error:
        _fail(str(error))
    sys.exit(code)


def _settings(process: str) -> Settings:
    """Read the settings and configure the logs."""
    from wakupush.runtime.logging import configure
    from wakupush.runtime.settings import SettingsError, load_settings

    try:
        settings = load_settings()
    except SettingsError as error:
        _fail(str(error))
    configure(settings, process=process)
    return settings
