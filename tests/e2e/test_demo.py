"""`wakupush demo`, as `make demo` runs it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from wakupush.devnet.processes import wait_until

COMMAND = [sys.executable, "-m", "wakupush", "demo"]
README = Path(__file__).parents[2] / "README.md"


def pids(output: str) -> list[int]:
    return [
        int(pid)
        for pid in re.findall(
            r"^ (?:postgres|redis|waku|gorush|feedback|worker \w+|beat|ingest \w+) +(\d+)", output, re.MULTILINE
        )
    ]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/exe").resolve().exists() and os.kill(pid, 0) is None
    except (ProcessLookupError, PermissionError):
        return False


def test_demo_shows_the_main_job_and_cleans_up():
    result = subprocess.run(COMMAND, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "every answer byte for byte as recorded" in result.stdout
    assert "all 11 processes have ended" in result.stdout
    assert "eleven processes" in README.read_text()
    assert "all 11 processes have ended" in README.read_text()
    assert len(pids(result.stdout)) == 11
    assert re.search("public key is 0x04[0-9a-f]{128}$", result.stdout, re.MULTILINE)  # nothing was folded
    assert not any(map(is_alive, pids(result.stdout)))


def test_ctrl_c_leaves_nothing_behind():
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        output = ""
        for line in demo.stdout:
            output += line
            if "a small client" in line:
                demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=300) == 130, output
    assert "everything that was started has been stopped" in output
    assert len(pids(output)) == 11
    wait_until(lambda: not any(map(is_alive, pids(output))), timeout=60, what="all processes have ended")
