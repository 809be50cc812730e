"""No process of ours leaves a core dump, which would hold the server's key."""

import os
import signal
import subprocess
import sys

import pytest

#: Dies in a command as a crash does, where dumps are allowed; or not in a command.
CRASH = """
import os, resource
from wakupush.cli import cli
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
cli.app = os.abort
{begin}
"""
CHILD = """
import subprocess, sys
from wakupush.runtime import core_dumps
core_dumps.forbid()
show = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"
subprocess.run([sys.executable, "-c", show])
"""


def died(begin, folder):
    """The wait status of a process that crashed."""
    process = subprocess.Popen([sys.executable, "-c", CRASH.format(begin=begin)], cwd=folder)
    _, status = os.waitpid(process.pid, 0)
    process.returncode = status
    return status


def test_a_crash_of_a_command_dumps_nothing(tmp_path):
    status = died("cli.main()", tmp_path)
    assert (os.WTERMSIG(status), os.WCOREDUMP(status)) == (signal.SIGABRT, False)
    assert list(tmp_path.iterdir()) == []
    if not os.WCOREDUMP(died("cli.app()", tmp_path)):
        pytest.skip("the system dumps no process")


def test_processes_that_it_starts_dump_nothing():
    """Java, say, which runs the pipeline's jobs."""
    result = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert result.stdout == "(0, 0)\n"
