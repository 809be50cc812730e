"""A forked process is what `python -m` would have started."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from support.forkserver import PRELOADED
from wakupush.devnet.processes import Process

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


def test_it_is_as_if_started_anew(forkserver, tmp_path):
    (tmp_path / "module_of_test.py").write_text(TELLS)
    command = [sys.executable, "-m", "module_of_test", "--an", "argument"]
    told = []
    for each in (None, forkserver):
        log = tmp_path / f"log-{each is None}"
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "OF_TEST": "ä"}
        with Process("module", command, launcher=each and each.fork, log=log, env=env, cwd=tmp_path) as process:
            assert process.wait(60) == 0
        lines = log.read_text().splitlines()
        assert sorted(lines)[:2] == ["at exit", "to the log"]
        told.append(json.loads(next(line for line in lines if line.startswith("{"))))
        # Shells add some.
        told[-1]["environment"] = {name: told[-1]["environment"].get(name) for name in env}
    assert told[0] == told[1]


def test_nothing_preloaded_imports_the_metrics():
    imports = f"import sys, importlib; [importlib.import_module(name) for name in {PRELOADED}]"
    asks = "print('prometheus_client' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", f"{imports}; {asks}"], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"
