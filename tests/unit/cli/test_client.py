"""What the command line shows, and the codes with which it ends."""

import asyncio
import errno
import fcntl
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from wakupush.cli import client as commands
from wakupush.cli.client import Exit
from wakupush.client.drivers import light
from wakupush.client.drivers.storage import REGISTRATION, SqliteFile
from wakupush.client.events import Unsent
from wakupush.client.rules.acquaintances import KEEP_SECONDS, Acquaintance, Way
from wakupush.client.rules.registering import Enrolment, RegistrarState, Status
from wakupush.protocol.keys import PrivateKey

HOSTILE = ["[/]", "[bold]x", "\x1b]0;title\x07\x1b[2J", "a\nb", "x" * 10_000]


def common(*, as_json=False):
    return commands._Common(
        key=None, nodes=("",), mode=commands.Mode.LIGHT, shard="", state=None, anonymous=False, as_json=as_json
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_strangers_does_not_steer_the_terminal(text, capsys):
    commands._show(common(), [{"installation_id": text}])
    commands._show_event(common(), Unsent(text))
    output = capsys.readouterr().out
    assert text.isprintable() <= (text[:150] in output)
    assert all(line.isprintable() for line in output.splitlines())
    assert len(output) < 1000
    commands._show(common(as_json=True), [{"installation_id": text}])
    assert json.loads(capsys.readouterr().out) == [{"installation_id": text}]


class Enrolled:
    """A client at one server, with the answers of `Client`."""

    def __init__(self, status, *, is_settled=True, is_advertised=True):
        enrolment = Enrolment(server=PrivateKey.generate().public_key, status=status)
        self.registration = replace(RegistrarState(), enrolments=(enrolment,))
        self._answers = is_settled, is_advertised

    async def wait_until_settled(self, _seconds, _servers):
        return self._answers[0]

    def advertise(self):
        pass

    async def wait_until_advertised(self, _seconds):
        return self._answers[1]


@pytest.mark.parametrize(
    ("client", "code"),
    [
        (Enrolled(Status.REGISTERED), Exit.DONE),
        (Enrolled(Status.UNREGISTERED), Exit.DONE),
        (Enrolled(Status.REFUSED), Exit.REFUSED),
        (Enrolled(Status.ASKED, is_settled=False), Exit.NO_ANSWER),
        (Enrolled(Status.REGISTERED, is_advertised=False), Exit.NO_ANSWER),
        (Enrolled(Status.UNREGISTERED, is_advertised=False), Exit.NO_ANSWER),
    ],
)
def test_exit_code_shows_missing_answers(client, code, capsys):
    session = commands._Session(common())
    session.client = client
    assert asyncio.run(commands._settle(session, 1.0)) is code
    assert capsys.readouterr().out


def test_options_stay_unless_given(tmp_path):
    file = tmp_path / "alice.key"
    public_key = CliRunner().invoke(commands.app, ["keygen", str(file)]).output.strip()
    server = str(PrivateKey.generate().public_key)

    def register(*options):
        """Return what is kept; the node is not there."""
        common = ["--key", str(file), "--node", "http://127.0.0.1:1"]
        arguments = ["register", "--server", server, "--device-token", "new", "--wait", "0.1", *options]
        assert CliRunner().invoke(commands.app, [*common, *arguments]).exit_code in {Exit.NO_ANSWER, Exit.NODE}
        with SqliteFile(f"{file}.state") as state:
            stored_options = state.account(public_key).get(REGISTRATION, "").options
        return stored_options.contacts_only, stored_options.muted_chats, stored_options.block_mentions

    assert register() == (False, (), False)
    assert register("--contacts-only", "--mute-chat", "c") == (True, ("c",), False)
    assert register() == (True, ("c",), False)
    assert register("--block-mentions") == (False, (), True)
    assert register("--anybody") == (False, (), False)


def test_what_may_be_used_no_longer_is_not_shown():
    user, server = (PrivateKey.generate().public_key for _ in range(2))
    way = Way(installation_id="i", server=server, access_token="t", version=1, learned_at=time.time())
    old = replace(way, learned_at=way.learned_at - KEEP_SECONDS - 1)
    assert len(commands._ways([Acquaintance(user=user, ways=(way,))])) == 1
    assert commands._ways([Acquaintance(user=user, ways=(old,))]) == []


def run(*arguments):
    return CliRunner().invoke(commands.app, arguments)


@pytest.fixture
def key_file(tmp_path):
    file = tmp_path / "alice.key"
    assert run("keygen", str(file)).exit_code == 0
    return str(file)


USER = str(PrivateKey.generate().public_key)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--shard", "nonsense", "status"], "--shard is a pubsub topic, for example /waku/2/rs/16/32"),
        (["--node", "127.0.0.1:8645", "status"], "--node is the URL"),
        (["query", USER, "0x123456789a"], "USER 0x123456…: a public key has"),
        (["register", "--server", "0x00zz", "--device-token", "t"], "--server 0x00zz…: a key is written in hex digits"),
        (
            ["register", "--server", USER, "--device-token", "t", "--block-user", "x"],
            "--block-user x…: a key is written in hex digits",
        ),
        (
            ["register", "--server", USER, "--platform", "apn", "--apn-topic", "app", "--device-token", "a b"],
            "there is no device token, or it has characters that no token has",
        ),
        (["register", "--server", USER, "--platform", "apn", "--device-token", "t"], "needs an APN topic"),
        (["register", "--server", USER, "--device-token", "t" * 9999], "the device token or the APN topic is too long"),
    ],
)
def test_what_is_wrong_is_named(key_file, arguments, text):
    result = run("--key", key_file, *arguments)
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert text in result.stderr


@pytest.mark.parametrize(
    "arguments", [["query", USER], ["send", USER, "--chat", "c"], ["listen"], ["listen", USER, "--seconds", "1"]]
)
def test_down_node_is_reported_once_without_password(key_file, arguments, monkeypatch):
    monkeypatch.setattr(light, "FIRST_WAIT", 0.01)
    result = run("--key", key_file, "--node", "http://user:planted@127.0.0.1:1", *arguments)
    assert (result.exit_code, result.stdout) == (Exit.NODE, "")
    assert result.stderr == (
        "wakupush: the node at http://127.0.0.1:1 did not do its part: it cannot be reached; see --node\n"
    )


@pytest.mark.parametrize("arguments", [["--json", "whoami"], ["whoami", "--json"]])
def test_json_is_asked_for_before_or_after_the_command(key_file, arguments):
    result = run("--key", key_file, *arguments)
    assert [*json.loads(result.stdout)[0]] == ["public_key", "push_key", "installation_id"]


def test_nothing_is_said_to_be_nothing(key_file):
    result = run("--key", key_file, "status")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "wakupush: nothing is registered\n")
    result = run("--key", key_file, "--node", "http://127.0.0.1:1", "unregister")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "wakupush: nothing was registered\n")


def test_what_could_not_be_advertised_in_time_is_said(monkeypatch, capsys):
    session = commands._Session(common())
    session.client = Enrolled(Status.REGISTERED, is_advertised=False)
    monkeypatch.setattr(commands, "_run", lambda _common, work: sys.exit(asyncio.run(work(session))))
    with pytest.raises(SystemExit) as ended:
        commands.advertise(SimpleNamespace(obj=session.common))
    assert ended.value.code is Exit.NO_ANSWER
    assert capsys.readouterr().err == "wakupush: it could not be advertised in time\n"


def test_a_row_without_a_value_says_so(capsys):
    commands._show(common(), [{"a": None, "longer": "x" * 90}, {"a": "y"}])
    assert capsys.readouterr().out == f"a       none\nlonger  {'x' * 90}\na  y\n"


def test_a_full_disk_is_not_the_state(key_file):
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "wakupush", "client", "--key", key_file, "whoami"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
    assert result.returncode == Exit.USAGE
    assert result.stderr == "wakupush: nothing can be printed: No space left on device\n"


def test_a_state_that_cannot_be_used_is_named(key_file, tmp_path, monkeypatch):
    result = run("--key", key_file, "--state", str(tmp_path / "nowhere" / "state"), "whoami")
    assert result.exit_code == Exit.USAGE
    assert f"the state cannot be used: [Errno 2] No such file or directory: '{tmp_path}/nowhere/state'" in result.stderr
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))))
    result = run("--key", key_file, "--node", "http://127.0.0.1:1", "advertise")
    assert result.exit_code == Exit.USAGE
    assert re.search(r"the state cannot be used: .* No locks available: '.*state\..*\.lock'", result.stderr)
    Path(f"{key_file}.state").write_bytes(b"no database")
    result = run("--key", key_file, "whoami")
    assert result.exit_code == Exit.USAGE
    assert f"the state {key_file}.state cannot be used: file is not a database" in result.stderr
