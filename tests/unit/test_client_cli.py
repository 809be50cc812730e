"""What the command line shows, and the codes with which it ends."""

import json

import pytest

from wakupush import cli_client
from wakupush.client.events import Unsent

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
