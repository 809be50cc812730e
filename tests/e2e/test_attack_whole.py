"""`make attack` from its beginning to its end, with few messages."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from benchmarks.attack.aims import Verdict, exit_code
from benchmarks.attack.floods import FLOODS
from benchmarks.attack.traffic import size
from benchmarks.attack.world import World
from benchmarks.running import running
from wakupush.devnet.processes import wait_until

FEW = 40


@contextmanager
def attacking(*options):
    """Start it, with a directory for what it leaves, which is nothing."""
    with tempfile.TemporaryDirectory(prefix="wakupush-attack-") as directory:
        Path(directory).chmod(0o755)
        command = [sys.executable, "-m", "benchmarks.attack", "--messages", str(FEW), "--runs", "1", *options]
        environment = os.environ | {"TMPDIR": directory}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            yield process
        assert list(Path(directory).glob("wakupush-bench-*")) == []


@pytest.mark.long
def test_a_flood_is_measured_and_judged(tmp_path):
    figures = tmp_path / "figures.json"
    with attacking("--kind", "junk of 400", "--seconds", "2", "--json", str(figures)) as process:
        printed, _ = process.communicate()
    [report] = json.loads(figures.read_text())["floods"]
    assert (report["flood"], report["stopped"]) == ("junk of 400 bytes", "")
    [cost] = report["costs"]
    assert cost["messages"] == FEW
    assert 330 < cost["bytes"] / FEW < 450, "the payload, its topic and its time"
    assert cost["stored"]["rows"]["ledger"] == FEW, "a message leaves one row there"
    assert cost["stored"]["bytes"]["ledger"] > 0
    [[alone, beside]] = report["felt"]
    assert (alone["lost"], beside["lost"]) == (0, 0)
    assert (alone["noise_rate"], beside["noise_rate"]) == (0, pytest.approx(2 * beside["rate"], rel=0.1))
    assert 0 < alone["p50"] <= alone["p99"]
    assert process.returncode == exit_code([Verdict(aim["verdict"]) for aim in report["aims"]])
    assert "junk of 400 bytes" in printed


def is_of_the_server(process):
    with suppress(psutil.NoSuchProcess):
        return "wakupush" in process.cmdline()
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_it_ends_with_all_that_it_started(number):
    with attacking("--kind", "junk of 400") as process:
        started = []

        def runs():
            started[:] = psutil.Process(process.pid).children(recursive=True)
            return sum(map(is_of_the_server, started)) >= 7

        wait_until(runs, timeout=300, what="the server runs", interval=0.2)
        process.send_signal(number)
        process.communicate()
    assert process.returncode == 128 + number
    _, alive = psutil.wait_procs(started, timeout=60)
    assert alive == []


@pytest.mark.long
def test_every_flood_is_made_and_handled():
    with running(1) as bench:
        world = World(bench, FEW)
        sizes = {}
        for flood in FLOODS:
            messages = flood.make(world, 2)
            world.send(messages)
            sizes[flood.name] = [size(message) for message in messages]
    assert all(len(each) == 2 and min(each) > 0 for each in sizes.values())
    assert min(sizes["empty items, 7.8 MB"]) > 7_800_000
