"""Commands of ours in the test's own process."""

from click.testing import Result
from typer.testing import CliRunner

from wakupush.cli import app


def run(*words: object, expect: int = 0, **options) -> Result:
    """Run a command, which has to end with this code; `options` are `input` and `env`."""
    result = CliRunner().invoke(app, [str(word) for word in words], **options)
    assert result.exit_code == expect, result.output
    return result
