"""The set of 2026 comes from its generator, which also makes registrations too large for the repository."""

import shutil
import subprocess

import pytest

from conformance import sets
from conformance.expected import EXACT, Scenario
from conformance.running import differences, running

TESTS = sets.TESTS
INSTALLED = shutil.which("node") and (TESTS.parent / "examples" / "js" / "node_modules" / "protobufjs").is_dir()
if not INSTALLED:
    pytest.skip("install Node.js 20 or newer with npm, then run: make setup-node", allow_module_level=True)


def generate(directory, *words):
    command = ["node", str(sets.OF_2026 / "generate.mjs"), str(directory), *words]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_generator_gives_the_committed_files(tmp_path):
    # It compares its own functions with the recordings of 2024 first.
    assert generate(tmp_path) == "190 messages of 2024 come out as recorded\n"
    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert contents == {name: (sets.OF_2026 / name).read_bytes() for name in contents}
    assert contents.keys() == {path.name for path in sets.OF_2026.iterdir()} - {"README.md", "generate.mjs"}


def test_large_registrations(tmp_path, forkserver):
    generate(tmp_path, "sizes")
    scenario = Scenario(tmp_path / "scenario_2026_sizes.json")
    sizes = [len(message["waku_message"]["payload"]) * 3 // 4 for step in scenario.steps for message in step["send"]]
    assert sorted(size // 1000 for size in sizes if size > 1000) == [138, 159, 706, 786]
    with running(scenario, forkserver) as played:
        for position, expected in enumerate(scenario.expected):
            assert expected.verdict == EXACT
            assert differences(expected, played.outcome(position)) == [], scenario.steps[position]["name"]
