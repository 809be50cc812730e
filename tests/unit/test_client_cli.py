"""What the command line shows, and the codes with which it ends."""

import asyncio
import json
from dataclasses import replace

import pytest

from wakupush import cli_client
from wakupush.cli_client import Exit
from wakupush.client.events import Unsent
from wakupush.client.registering import Enrolment, State, Status
from wakupush.protocol.keys import PrivateKey

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
