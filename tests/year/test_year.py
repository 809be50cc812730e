"""A few days; the full run is ``make year``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.run import open_directory
from year import clock

TESTS = Path(__file__).parent.parent


@pytest.mark.long
def test_server_lives_through_three_days() -> None:
    if clock.library() is None:
        pytest.skip("libfaketime is missing: install Debian's package faketime")
    with open_directory() as directory:
        file = directory / "figures.json"
        result = subprocess.run(
            [sys.executable, "-m", "year.run", "--days", "3", "--no-export", "--json", str(file)],
            env=os.environ | {"PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        days = json.loads(file.read_text())["days"]
    assert [day["violations"] for day in days] == [[], [], []]
    assert all(day["messages"] > 100 for day in days)
    # Partitions were made on each day; none is old enough to be dropped.
    partitions = [day["values"]["partitions"]["ledger"] for day in days]
    assert partitions[0] < partitions[1] < partitions[2]
    assert {"prune", "claim_due", "watch_marking"} <= days[-1]["values"]["seconds of a job"].keys()
