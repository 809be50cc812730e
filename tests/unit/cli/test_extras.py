"""Where the SDK alone is installed, its commands run, and the others say what to install."""

import subprocess
import sys

import pytest

from wakupush.cli.output import OF_SERVER

WITHOUT_SERVER = f"import sys; sys.modules.update(dict.fromkeys({sorted(OF_SERVER)!r})); "
MAIN = WITHOUT_SERVER + "from wakupush.cli import main; main()"


def run(program, *arguments):
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)


def test_the_sdk_needs_no_extra():
    result = run(WITHOUT_SERVER + "import wakupush.client; print(*sys.modules)")
    assert (result.returncode, result.stderr) == (0, "")
    # They would double the time of the import.
    assert not {"pydantic", "aiohttp"} & set(result.stdout.split())


def test_commands_of_the_client_need_no_extra(tmp_path):
    key = str(tmp_path / "alice.key")
    keygen = run(MAIN, "client", "keygen", key)
    whoami = run(MAIN, "client", "--key", key, "whoami")
    assert (keygen.returncode, whoami.returncode) == (0, 0), whoami.stderr
    assert keygen.stdout.strip() in whoami.stdout
    unreachable = run(MAIN, "client", "--key", key, "--node", "http://127.0.0.1:1", "discover", "0x04" + "00" * 64)
    assert "is not installed" not in unreachable.stderr


@pytest.mark.parametrize("command", ["worker dispatch", "ingest live", "doctor", "status", "migrate"])
def test_other_commands_name_the_missing_extra(command):
    result = run(MAIN, *command.split())
    assert result.returncode == 2
    assert result.stderr.endswith("is not installed: install wakupush[server]\n")
    assert result.stderr.startswith("wakupush: ")
