"""`wakupush dev`: the whole server in the foreground, on embedded parts unless options name others."""

import os
import shlex
import shutil
import tempfile
import time
from pathlib import Path
from secrets import token_hex

from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from rich.console import Console

from wakupush.devnet.processes import Process, StartFailedError
from wakupush.devnet.stack import External, Stack
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime.settings import Settings
from wakupush.runtime.stopping import stop_on_signals
from wakupush.runtime.urls import without_user

#: Seconds between looks at whether everything still runs.
LOOK_SECONDS = 0.5
#: Seconds after which a part that ended starts again.
RESTART_SECONDS = 3.0


def run(external: External, key: PrivateKey | None, settings: Settings) -> int:
    """Run until Ctrl-C and return the exit code: 0, or 1 if a part did not start.

    A part that ends later starts again. Embedded parts keep their data in a temporary directory, which goes at the end.

    Args:
        key: of the server; a new one unless given.
        settings: of the environment. All of them apply, except the key, addresses and ports.
    """
    console = Console(highlight=False, soft_wrap=True)
    stop = stop_on_signals()
    directory = Path(tempfile.mkdtemp(prefix="wakupush-dev-"))
    directory.chmod(0o755)  # Postgres runs as another user if we are root
    # The key is in a file of the stack, but this variable would take precedence over it.
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("WAKUPUSH_") and name != "WAKUPUSH_IDENTITY_KEY"
    }
    # All apps push to the gorush of the stack, which has one secret.
    secret = settings.gorush.feedback_secret
    variables["WAKUPUSH_GORUSH__FEEDBACK_SECRET"] = secret.get_secret_value() if secret else token_hex(16)
    for name in settings.apps:
        variables[f"WAKUPUSH_APPS__{name.upper()}__GORUSH_URLS"] = "[]"
        variables[f"WAKUPUSH_APPS__{name.upper()}__FEEDBACK_SECRET"] = variables["WAKUPUSH_GORUSH__FEEDBACK_SECRET"]
    try:
        key = key or PrivateKey.generate()
        with Stack(
            directory,
            key=key,
            external=external,
            defaults=variables,
            shards=settings.waku.shards,
            serves_metrics=True,
        ) as stack:
            _show(console, stack, external)
            restarts: dict[str, float] = {}
            while not stop.wait(LOOK_SECONDS):
                for process in stack.processes:
                    _keep_going(console, process, restarts)
    except StartFailedError as error:
        (directory / "identity.key").unlink(missing_ok=True)
        console.print(f"{error}\nthe logs are in {directory}", markup=False)
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def _keep_going(console: Console, process: Process, restarts: dict[str, float]) -> None:
    """Say that a part ended, or start it again once its time in monotonic seconds has come."""
    if process.running:
        return
    if process.name not in restarts:
        restarts[process.name] = time.monotonic() + RESTART_SECONDS
        text = f"{process.name} ended with {process.wait()} and starts again in {RESTART_SECONDS:g} s"
        console.print(f"{text}; {process.log_tail()}", markup=False)
    elif time.monotonic() >= restarts[process.name]:
        del restarts[process.name]
        process.launch()


def _show(console: Console, stack: Stack, external: External) -> None:
    facts = {
        "public key": str(stack.key.public_key),
        "Waku node": without_user(stack.node_url),
        "shards": " ".join(stack.shards),
        "gorush": without_user(stack.gorush_url),
        "Postgres": without_secrets(stack.postgres_dsn),
        "Redis": without_user(stack.redis_url).partition("?")[0],  # a password may be there, too
        "logs": str(stack.directory),
        "shell": f". {shlex.quote(str(_environment_file(stack)))}",
    }
    if external.gorush_url:
        facts["feedback"] = f"{stack.feedback_url} {stack.feedback_header}"
    for name, value in facts.items():
        console.print(f"{name:<12}{value}", markup=False)
    for process, url in stack.metrics_urls.items():
        console.print(f"metrics     {url} of {process}", markup=False)
    console.print("ready")


def _environment_file(stack: Stack) -> Path:
    """Write the file that gives another shell what `wakupush` and the commands of README need."""
    variables = {"SERVER": str(stack.key.public_key), "NODE": stack.node_url} | {
        name: value
        for name, value in stack.environment.items()
        if name.startswith("WAKUPUSH_") and not name.endswith("HTTP_PORT")
    }
    file = stack.directory / "env.sh"
    file.touch(mode=0o600)
    file.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()))
    return file


def without_secrets(dsn: str) -> str:
    """Return the printable part of a connection string, without what libpq marks as secret or as a debug option."""
    public = {option.keyword.decode() for option in pq.Conninfo.get_defaults() if not option.dispchar}
    parameters = conninfo_to_dict(dsn).items()
    return make_conninfo(**{name: str(value) for name, value in parameters if name in public and value is not None})
