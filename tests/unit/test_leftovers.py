"""What a test leaves fails this test, and no other."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

TESTS = Path(__file__).parents[1]
CONTENT = """
import subprocess, sys
from pathlib import Path
import pytest
from support import leftovers
from wakupush.devnet.parts.processes import Process

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]

@pytest.fixture(scope="session")
def kept():
    return subprocess.Popen(SLEEP)

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Process("server", SLEEP, log=tmp_path_factory.mktemp("server") / "log") as process:
        yield process

def test_keeps(kept, server):
    server.restart()

def test_leaves():
    leftovers.GRACE = 0.0
    Path("left").write_text(str(subprocess.Popen(SLEEP, stdin=subprocess.PIPE).pid))

def test_after_leaves(kept, server):
    leftovers.GRACE = 30.0
    assert kept.poll() is None
    assert server.running

def test_fails_in_a_block():
    with subprocess.Popen(SLEEP) as process:
        Path("blocked").write_text(str(process.pid))
        raise ValueError

def test_fails_with_a_child_and_a_file():
    file, process = open(__file__), subprocess.Popen(SLEEP)
    assert False

def test_after_the_failures(kept, server):
    Path("kept").write_text(str(kept.pid))
    assert kept.poll() is None
    assert server.running

def test_does_not_wait_for_what_it_ended():
    subprocess.Popen(SLEEP).terminate()
"""


@pytest.fixture
def run(tmp_path):
    def run(content, *before):
        (tmp_path / "test_content.py").write_text(content)
        options = ["-p", "support.leftovers", "-p", "no:cacheprovider", "-W", "error", "-rA", "--timeout", "600"]
        return subprocess.run(
            [*before, sys.executable, "-m", "pytest", *options, "test_content.py"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
            capture_output=True,
            text=True,
            check=False,
        ).stdout

    return run


def test_what_is_left_fails_the_test_that_left_it(run, tmp_path):
    told = run(CONTENT)
    failed = {line.split()[1].split("::")[1] for line in told.splitlines() if line.startswith(("FAILED", "ERROR "))}
    assert failed == {"test_leaves", "test_fails_in_a_block", "test_fails_with_a_child_and_a_file"}, told
    assert "2 failed, 5 passed, 1 error" in told, told
    assert "it left processes, which were killed" in told
    for name in ("left", "blocked", "kept"):
        assert not psutil.pid_exists(int((tmp_path / name).read_text())), name


def test_ctrl_c_works_where_whoever_started_the_tests_ignores_it(run):
    conftest = (TESTS / "conftest.py").read_text().replace('pytest_plugins = ["support.leftovers"]', "")
    ask = "import signal; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    test = (
        f"import subprocess, sys\ndef test_child():\n    subprocess.run([sys.executable, '-c', {ask!r}], check=True)\n"
    )
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    assert "1 passed" in run(f"{conftest}\n{test}", sys.executable, "-c", ignoring)
