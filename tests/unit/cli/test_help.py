"""The help of commands: each ends with examples, which the program takes."""

import re
import shlex

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from wakupush.cli import app
from wakupush.cli.examples import EXAMPLES
from wakupush.model.queues import QUEUES
from wakupush.protocol.keys import PrivateKey
from wakupush.runtime.settings import load_settings

KEY = str(PrivateKey(b"\1" * 32).public_key)


def leaves(command, words=()):
    groups = getattr(command, "commands", {})
    if not groups:
        yield " ".join(words), command
    for name, inner in groups.items():
        yield from leaves(inner, (*words, name))


COMMANDS = dict(leaves(get_command(app)))


def test_every_command_has_an_example():
    assert EXAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize(
    ("name", "example"), [(name, example) for name, examples in EXAMPLES.items() for example in examples]
)
def test_examples_are_accepted(name, example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("recording.json", "statusd.db", "statusd.json", "identity.key", "alice.key"):
        (tmp_path / file).touch()
    # Variables may stand before the program.
    words = shlex.split(re.sub(r"^(\w+=\S+ )*", "", example).replace("0x04…", KEY))
    assert words.pop(0) == "wakupush"
    command = get_command(app)
    context = command.make_context("wakupush", words, resilient_parsing=False)
    while getattr(command, "commands", {}):
        name_of_inner, command, rest = command.resolve_command(context, context._protected_args + context.args)
        context = command.make_context(name_of_inner, rest, parent=context)
    assert context.command_path == f"wakupush {name}"


def test_help_shows_the_examples():
    output = CliRunner().invoke(app, ["why", "--help"], env={"COLUMNS": "120"}).stdout
    assert "wakupush why --last-hour" in output


def test_an_unknown_pool_is_refused_with_those_of_the_queues():
    result = CliRunner().invoke(app, ["worker", "nothing"])
    assert result.exit_code == 2
    assert all(f"'{name}'" in result.stderr for name in QUEUES)


def test_options_of_the_client_come_from_the_environment(tmp_path):
    key = tmp_path / "alice.key"
    public_key = CliRunner().invoke(app, ["client", "keygen", str(key)]).stdout.strip()
    result = CliRunner().invoke(app, ["client", "whoami"], env={"WAKUPUSH_CLIENT_KEY": str(key)})
    assert public_key in result.stdout
    wrong = CliRunner().invoke(app, ["client", "whoami"], env={"WAKUPUSH_CLIENT_NODE": "ftp://x"})
    assert (wrong.exit_code, "--node" in wrong.stderr) == (2, True)


def test_options_of_the_client_are_no_settings_of_a_server(monkeypatch):
    monkeypatch.setenv("WAKUPUSH_CLIENT_NODE", "http://127.0.0.1:8645")
    load_settings()
