"""A forked process is what `python -m` would have started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.forkserver import PRELOADED, Forkserver
from wakupush.devnet.parts.processes import Process, StartFailedError, WaitTimeoutError, wait_until

TELLS = """
import atexit, json, os, signal, sys, threading

atexit.register(print, "at exit")
told = {
    "main": [__name__, __spec__.name, __file__],
    "argv": sys.argv,
    "path": sys.path,
    "environment": dict(os.environ),
    "cwd": os.getcwd(),
    "leads": os.getpid() == os.getsid(0) == os.getpgid(0),
    "files": sorted(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else None,
    "signals": [str(signal.getsignal(number)) for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM)],
    "threads": threading.active_count(),
    "input": sys.stdin.read(),
}
print(json.dumps(told))
print("to the log", file=sys.stderr)
"""
RANDOM = "import random, uuid; print(random.random(), uuid.uuid4())"
#: Where `support` is.
TESTS = str(Path(__file__).parents[2])
#: Its child would outlive it.
PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def module(tmp_path):
    """Make a module that a process can run, and return the process."""

    def module(text: str, *arguments: str, forkserver: Forkserver | None, **options) -> Process:
        (tmp_path / "module_of_test.py").write_text(text)
        options = {"log": tmp_path / "log", "env": {**os.environ, "PYTHONPATH": str(tmp_path)}} | options
        command = [sys.executable, "-m", "module_of_test", *arguments]
        return Process("module", command, launcher=forkserver and forkserver.fork, **options)

    return module


def test_it_is_as_if_started_anew(module, forkserver, tmp_path):
    told = []
    for each in (None, forkserver):
        log = tmp_path / f"log-{each is None}"
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "OF_TEST": "ä"}
        with module(TELLS, "--an", "argument", forkserver=each, log=log, env=env, cwd=tmp_path) as process:
            assert process.wait(60) == 0
        lines = log.read_text().splitlines()
        assert sorted(lines)[:2] == ["at exit", "to the log"]
        told.append(json.loads(next(line for line in lines if line.startswith("{"))))
        # Shells add some.
        told[-1]["environment"] = {name: told[-1]["environment"].get(name) for name in env}
    assert told[0] == told[1]


def test_processes_of_one_forkserver_draw_different_numbers(module, forkserver, tmp_path):
    for _ in range(2):
        with module(RANDOM, forkserver=forkserver) as process:
            process.wait(60)
    first, second = (line.split() for line in (tmp_path / "log").read_text().splitlines())
    assert first[0] != second[0]
    assert first[1] != second[1]


@pytest.mark.parametrize(
    ("end", "status"), [("raise SystemExit(3)", 3), ("raise ValueError", 1), ("import os; os.kill(os.getpid(), 9)", -9)]
)
def test_exit_status(module, forkserver, end, status):
    process = module(end, forkserver=forkserver)
    process.launch()
    assert process.wait(60) == status
    assert process.wait() == status
    assert not process.running


def test_stop_and_kill_end_the_whole_group(module, forkserver):
    process = module(PARENT, forkserver=forkserver, ready=lambda: process.has_logged("ready"))
    for end, status in ((process.stop, -signal.SIGTERM), (process.kill, -signal.SIGKILL)):
        process.start()
        with pytest.raises(WaitTimeoutError):
            process.wait(0.05)
        [child] = psutil.Process(process.pid).children()
        end()
        assert process.wait() == status
        wait_until(lambda child=child: not child.is_running(), timeout=60, what="its child is gone")


def test_a_process_that_is_never_ready_shows_its_log(module, forkserver):
    with pytest.raises(StartFailedError, match=r"module ended with 1 while starting\n(.|\n)*ZeroDivisionError"):
        module("1 / 0", forkserver=forkserver, ready=lambda: False).start()


def test_what_is_forked_dies_with_whoever_asked(tmp_path):
    (tmp_path / "module_of_test.py").write_text(PARENT)
    parent = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {TESTS!r})
from support.forkserver import Forkserver
from wakupush.devnet.parts.processes import Process
log = Path({str(tmp_path / "log")!r})
process = Process("child", [sys.executable, "-m", "module_of_test"], log=log, env={{"PYTHONPATH": {str(tmp_path)!r}}},
    ready=lambda: process.has_logged("ready"), launcher=Forkserver().fork)
process.start()
print(process.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        forked = psutil.Process(int(process.stdout.readline()))
        server = forked.parent()
        all_of_them = [forked, *forked.children(), server]
        assert len(all_of_them) == 3
        process.kill()
    psutil.wait_procs(all_of_them, timeout=60)
    assert not [each for each in all_of_them if each.is_running()]


def test_a_forkserver_that_is_killed_takes_its_processes_with_it(module):
    with Forkserver() as forkserver:
        process = module(PARENT, forkserver=forkserver, ready=lambda: process.has_logged("ready"))
        process.start()
        forked = psutil.Process(process.pid)
        forked.parent().kill()
        assert process.wait(60) == -signal.SIGKILL
        forked.wait(60)
        with pytest.raises(OSError, match="the forkserver has ended"):
            process.start()


def test_nothing_preloaded_reads_where_the_counters_of_processes_are():
    imports = f"import sys, importlib; [importlib.import_module(name) for name in {PRELOADED}]"
    asks = "print('prometheus_client' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", f"{imports}; {asks}"], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"
