"""The command line, put together of the groups of commands."""

import atexit
import gc
import sys
from typing import Annotated

import typer

from wakupush.cli import apps, client, dead_letters, devnet, ingest, pipeline, quarantine, reference, setup, workers
from wakupush.cli.output import Commands

# Commands import what they need when they run: `wakupush keygen` starts without Celery, and the counters of a worker's
# processes need their directory before prometheus_client is imported.
# ruff: noqa: PLC0415

app = typer.Typer(
    cls=Commands,
    help="The push notification server for messengers on Waku.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(ingest.app, name="ingest")
app.add_typer(apps.app, name="apps")
app.add_typer(client.app, name="client")
app.add_typer(dead_letters.app, name="dead-letters")
app.add_typer(reference.export_app, name="export")
app.add_typer(reference.import_app, name="import")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(quarantine.app, name="quarantine")
for _command in (
    *(setup.keygen, setup.migrate),
    *(workers.worker, workers.beat, workers.exporter, workers.feedback),
    *(setup.doctor, setup.profile),
    *(devnet.demo, devnet.dev, devnet.replay),
):
    app.command()(_command)


def main() -> None:
    """Run the command line."""
    # Python would search a thousand modules for garbage 270 times while they load, once more at the end, and again for
    # each few hundred objects that a message brings: a fifth of ingest's work.
    gc.set_threshold(10_000)
    atexit.register(gc.freeze)
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(130)


def _print_version(*, is_asked: bool) -> None:
    if is_asked:
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
