"""The command line, put together of the groups of commands."""

import atexit
import gc
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from wakupush.cli import (
    apps,
    breaker,
    client,
    dead_letters,
    devnet,
    identity,
    ingest,
    pipeline,
    quarantine,
    reference,
    sample_push,
    settings,
    setup,
    status,
    tokens,
    why,
    workers,
)
from wakupush.cli.examples import add_examples
from wakupush.cli.output import Commands
from wakupush.runtime import core_dumps

app = typer.Typer(
    cls=Commands,
    help="The push notification server for messengers on Waku.",
    epilog="Begin with `wakupush demo`. A server of your own: `wakupush keygen`, `migrate`, `doctor`. Is it well?"
    " `wakupush status`. What is wrong with the setup? `wakupush doctor`.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
#: All commands and groups of commands, by the panel of the help in which they stand.
PANELS: dict[str, tuple[Callable[..., None] | typer.Typer, ...]] = {
    "Try": (devnet.demo, devnet.dev, devnet.replay),
    "Set up": (setup.keygen, setup.public_key, identity.app, setup.migrate, settings.settings, setup.profile, apps.app),
    "Run": (ingest.app, workers.worker, workers.beat, workers.feedback, workers.exporter, workers.canary, pipeline.app),
    "Operate": (
        status.status,
        why.why,
        setup.doctor,
        sample_push.sample_push,
        dead_letters.app,
        quarantine.app,
        tokens.app,
        breaker.app,
    ),
    "Move in and out": (reference.import_app, reference.export_app),
    "Client": (client.app,),
}
#: Of the groups, and of a command whose function has another name.
_NAMES = {
    apps.app: "apps",
    breaker.app: "breaker",
    client.app: "client",
    dead_letters.app: "dead-letters",
    identity.app: "identity",
    ingest.app: "ingest",
    pipeline.app: "pipeline",
    quarantine.app: "quarantine",
    reference.export_app: "export",
    reference.import_app: "import",
    sample_push.sample_push: "test-push",
    tokens.app: "tokens",
}
for _panel, _members in PANELS.items():
    for _member in _members:
        if isinstance(_member, typer.Typer):
            app.add_typer(_member, name=_NAMES[_member], rich_help_panel=_panel)
        else:
            app.command(_NAMES.get(_member), rich_help_panel=_panel)(_member)
add_examples(app)


def main() -> None:
    """Run the command line."""
    core_dumps.forbid()
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
