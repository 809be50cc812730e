"""No test of an earlier revision got lost on the way: `tests/manifest/` names each and what became of it.

Tests are read from the files, not collected, so that it is quick and the same whichever of them run. Hence it does not
see whether a test has fewer cases than it had: those are noted in the manifest for whoever looks.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "tests" / "manifest"


def rows(path):
    lines = path.read_text().splitlines()
    return dict(line.split("\t") for line in lines if line and not line.startswith("#"))


@cache
def found_in(path):
    """Return what pytest would find in a file, but the cases of each."""
    if not path.is_file():
        return set()
    found = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test"):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("Test"):  # of a state machine
                found.add(f"{name}::runTest")
            case ast.ClassDef(name=name) if name.startswith("Test"):
                found |= {
                    f"{name}::{each.name}"
                    for each in node.body
                    if isinstance(each, ast.FunctionDef) and each.name.startswith("test")
                }
    return found


def is_there(test):
    path, _, name = test.partition("::")
    return name in found_in(ROOT / path)


def successor(test, moves):
    path, _, name = test.partition("::")
    if test in moves:
        return moves[test]
    places = moves.get(path, path).split()
    return f"{next((place for place in places if name in found_in(ROOT / place)), places[0])}::{name}"


def lost(tests, moves):
    """Return the tests that nothing follows, and for which no reason is given."""
    became = {test: successor(test, moves) for test in tests}
    return {test: now for test, now in became.items() if not (is_there(now) or now.startswith("! "))}


TESTS, MOVES = rows(MANIFEST / "c607958.tsv"), rows(MANIFEST / "moves.tsv")


def test_every_test_has_a_successor_or_a_reason():
    assert len(TESTS) == 1157
    assert sum(map(int, TESTS.values())) == 6145
    if missing := lost(TESTS, MOVES):
        told = "\n".join(f"{test}: there is no {now}" for test, now in missing.items())
        pytest.fail(f"note in tests/manifest/moves.tsv what became of\n{told}", pytrace=False)


def test_what_moved_was_there():
    known = TESTS.keys() | {test.partition("::")[0] for test in TESTS}
    assert MOVES.keys() <= known


def test_what_is_lost_is_noticed():
    here = "tests/unit/test_manifest.py"
    gone, other = f"{here}::test_gone", f"{here}::test_what_moved_was_there"
    assert not lost([other], {})
    assert lost([gone], {}) == {gone: gone}
    assert lost([gone], {gone: f"{here}::test_nowhere"}) == {gone: f"{here}::test_nowhere"}
    assert not lost([gone], {gone: other})
    assert not lost([gone], {gone: "! nobody needs it"})
    assert lost([gone], {gone: "!"})
    moved = other.replace("manifest", "older")
    assert lost([moved], {})
    assert not lost([moved], {moved.partition("::")[0]: here})
    assert not lost([moved], {moved.partition("::")[0]: f"tests/unit/test_house.py {here}"})
    assert lost([moved], {moved.partition("::")[0]: "tests/unit/test_house.py tests/unit/test_leftovers.py"})
