"""Every step of every recorded scenario against a whole server, by the rules of docs/reference/conformance.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from conformance import sets
from conformance.expected import NOT_COMPARED, VERDICT, Scenario
from conformance.running import Running, differences, running
from support.leftovers import belonging_to_fixture

#: States of a delivery that is not over.
UNFINISHED = {"pending", "posting"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    paths = [path for each in sets.chosen(metafunc.config) for path in sorted(each.glob("scenario_*.json"))]
    steps = [
        # With xdist, one worker starts the server of a file: --dist loadgroup.
        pytest.param(
            scenario, position, id=f"{scenario.name}-{step['name']}", marks=pytest.mark.xdist_group(scenario.name)
        )
        for scenario in map(Scenario, paths)
        for position, step in enumerate(scenario.steps)
    ]
    metafunc.parametrize(("scenario", "position"), steps)


@pytest.fixture(scope="module")
def server_of(forkserver) -> Iterator[Callable[[Scenario], Running]]:
    """Return what gives the running server of a scenario; there is one at a time."""
    with ExitStack() as exit_stack:
        current: list[Running] = []

        def server_of(scenario: Scenario) -> Running:
            if not current or current[0].scenario is not scenario:
                exit_stack.close()
                current[:] = [exit_stack.enter_context(running(scenario, forkserver))]
            return current[0]

        yield belonging_to_fixture(server_of)


def test_step(scenario: Scenario, position: int, server_of, record_property) -> None:
    expected = scenario.expected[position]
    record_property(VERDICT, expected.verdict)
    if expected.fault:
        raise expected.fault
    outcome = server_of(scenario).outcome(position)
    assert not outcome.quarantined
    assert not outcome.strays
    if expected.verdict == NOT_COMPARED:
        pytest.skip("informational, and no outcome of ours is listed for it")
    if problems := differences(expected, outcome):
        pytest.fail("\n".join(problems), pytrace=False)
    assert sorted(expected.answers) == sorted(outcome.answers)
    assert set(outcome.ended) <= {"delivered"}
    if expected.trouble is not None:
        assert len(outcome.unfinished_states) == len(outcome.ended) == len(expected.pushes)
        assert set(outcome.unfinished_states) <= UNFINISHED
