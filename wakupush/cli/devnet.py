"""Commands for one machine without the Waku network: ``wakupush demo``, ``dev`` and ``replay``."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from wakupush.runtime.usage import UsageError

#: The repository's recording; it exists in a checkout only.
RECORDING = Path(__file__).parents[2] / "tests" / "vectors" / "scenario_client_flow.json"


def demo(
    recording: Annotated[
        Path | None, typer.Option(help="Recorded conversation to play; by default the repository's.")
    ] = None,
) -> None:
    """Run the whole server on embedded parts, send it messages, and show what happens."""
    from wakupush import devnet

    if parts := devnet.missing_parts():
        raise UsageError(f"the demo needs {', '.join(parts)}: install wakupush[devnet]")
    from wakupush.devnet import timeline

    if recording is None and RECORDING.exists():
        recording = RECORDING
    sys.exit(timeline.run(recording))


def dev(
    waku_url: Annotated[str | None, typer.Option(help="REST API of a Waku node.")] = None,
    gorush_url: Annotated[str | None, typer.Option(help="URL of gorush.")] = None,
    postgres_dsn: Annotated[str | None, typer.Option(help="Connection string of a Postgres database.")] = None,
    redis_url: Annotated[str | None, typer.Option(help="URL of a Redis database.")] = None,
    identity_key: Annotated[
        Path | None,
        typer.Option(help="File with the server's private key; by default that of the settings, or a new key."),
    ] = None,
) -> None:
    """Run the whole server in the foreground until Ctrl-C, on embedded parts unless options name others.

    The settings of the environment apply, except addresses and ports.
    """
    from wakupush import devnet

    if parts := devnet.missing_parts():
        raise UsageError(f"dev needs {', '.join(parts)}: install wakupush[devnet]")
    from wakupush.devnet import dev as in_foreground
    from wakupush.devnet.stack import External
    from wakupush.protocol.identity import parse
    from wakupush.runtime import keyfile
    from wakupush.runtime.settings import load_settings
    from wakupush.server.engine.identity import load_identity

    settings = load_settings()
    identity = None
    if identity_key:
        identity = keyfile.read(identity_key, parse)
    elif settings.identity_key or settings.identity_key_file:
        identity = load_identity(settings)
    if identity is not None and identity.root.public_key != identity.public_key:
        raise UsageError("dev runs with a key that was never rotated, and this one was")
    external = External(waku_url=waku_url, gorush_url=gorush_url, postgres_dsn=postgres_dsn, redis_url=redis_url)
    sys.exit(in_foreground.run(external, identity.private_key if identity else None, settings))


def replay(
    file: Annotated[Path, typer.Argument(help="A scenario of the vectors, or Waku messages as JSON lines.")],
    waku_url: Annotated[str, typer.Option(help="REST API of a Waku node; it must be subscribed to the shards.")],
    limit: Annotated[
        int | None,
        typer.Option(help="Most recorded messages to send; repeats within a scenario count once.", min=1),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Most messages per second.", min=0.001)] = None,
    restamp: Annotated[
        bool, typer.Option("--restamp", help="Set timestamps to now: nodes archive only fresh messages.")
    ] = False,
) -> None:
    """Publish recorded messages into a node, in order.

    Exits with 1 if the node did not take all of them.
    """
    from wakupush.operate import replay as recorded

    sys.exit(recorded.run(file, waku_url, limit=limit, rate=rate, restamp=restamp))
