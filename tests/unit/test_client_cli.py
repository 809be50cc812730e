"""What the command line shows, and the codes with which it ends."""

import asyncio
import json
import time
from dataclasses import replace

import pytest
import structlog
from typer.testing import CliRunner

from wakupush import cli_client
from wakupush.cli_client import Exit
from wakupush.client.acquaintances import KEEP_SECONDS, Acquaintance, Way
from wakupush.client.events import Unsent
from wakupush.client.registering import Enrolment, State, Status
from wakupush.client.storage import REGISTRATION, SqliteFile
from wakupush.protocol.keys import PrivateKey


@pytest.fixture(autouse=True)
def _logging():
    """Undo what a command sets: it logs to the stderr that it finds."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


HOSTILE = ["[/]", "[bold]x", "\x1b]0;title\x07\x1b[2J", "a\nb", "x" * 10_000]


def common(*, as_json=False):
    return cli_client._Common(
        key=None, node="", mode=cli_client.Mode.LIGHT, shard="", state=None, anonymous=False, as_json=as_json
    )


@pytest.mark.parametrize("text", HOSTILE)
def test_what_strangers_wrote_is_shown_and_does_not_steer_the_terminal(text, capsys):
    cli_client._show(common(), [{"installation_id": text}])
    cli_client._show_event(common(), Unsent(text))
    shown = capsys.readouterr().out
    assert text.isprintable() <= (text[:150] in shown)
    assert all(line.isprintable() for line in shown.splitlines())
    assert len(shown) < 1000
    cli_client._show(common(as_json=True), [{"installation_id": text}])
    assert json.loads(capsys.readouterr().out) == [{"installation_id": text}]


class Enrolled:
    """A client at one server, with the answers of `Client`."""

    def __init__(self, status, *, is_settled=True, is_advertised=True):
        enrolment = Enrolment(server=PrivateKey.generate().public_key, status=status)
        self.registration = replace(State(), enrolments=(enrolment,))
        self._answers = is_settled, is_advertised

    async def settled(self, _seconds):
        return self._answers[0]

    async def advertised(self, _seconds):
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
def test_what_was_not_answered_or_not_advertised_is_not_done(client, code, capsys):
    session = cli_client._Session(common())
    session.client = client
    assert asyncio.run(cli_client._settle(session, 1.0)) is code
    assert capsys.readouterr().out


def test_who_may_notify_stays_as_it_is_unless_it_is_told(tmp_path):
    file = tmp_path / "alice.key"
    public_key = CliRunner().invoke(cli_client.app, ["keygen", str(file)]).output.strip()
    server = str(PrivateKey.generate().public_key)

    def register(*options):
        """Return what is kept; the node is not there."""
        common = ["--key", str(file), "--node", "http://127.0.0.1:1"]
        told = ["register", "--server", server, "--device-token", "new", "--wait", "0.1", *options]
        assert CliRunner().invoke(cli_client.app, [*common, *told]).exit_code in {Exit.NO_ANSWER, Exit.NODE}
        with SqliteFile(f"{file}.state") as state:
            kept = state.account(public_key).get(REGISTRATION, "").options
        return kept.contacts_only, kept.muted_chats, kept.block_mentions

    assert register() == (False, (), False)
    assert register("--contacts-only", "--mute-chat", "c") == (True, ("c",), False)
    assert register() == (True, ("c",), False)
    assert register("--block-mentions") == (False, (), True)
    assert register("--anybody") == (False, (), False)


def test_what_may_be_used_no_longer_is_not_shown():
    user, server = (PrivateKey.generate().public_key for _ in range(2))
    way = Way(installation_id="i", server=server, access_token="t", version=1, learned_at=time.time())
    old = replace(way, learned_at=way.learned_at - KEEP_SECONDS - 1)
    assert len(cli_client._ways([Acquaintance(user=user, ways=(way,))])) == 1
    assert cli_client._ways([Acquaintance(user=user, ways=(old,))]) == []
