"""Every recorded scenario, played to a server whose rows are exported, gone, and imported again before each step.

So each step is played against an imported state, and must come to the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.expected import NOT_COMPARED, Scenario
from conformance.running import Running, differences, running
from wakupush.devnet import messages
from wakupush.postgres import query_topics
from wakupush.protocol import topics
from wakupush.protocol.identity import Identity
from wakupush.runtime.settings import LimitSettings
from wakupush.takeover import database, exporting, importing

VECTORS = Path(__file__).parents[1] / "vectors"
#: What an import brings anew.
TABLES = ("query_topics", "admitted_requests")
#: The one that is always played; the others say no more of an import, and take a minute.
ALWAYS = "scenario_client_flow"


class HandedOver(Running):
    """A scenario and the server that takes over from itself before each step."""

    def _play(self, position):
        self._hand_over(self._stack.directory / f"handed-over-{position}.db")
        return super()._play(position)

    def _hand_over(self, path):
        connection, identity = self._postgres, Identity.of(self._stack.key)
        exported = exporting.run(path, None, connection, identity, lambda _: None)
        rows = self._rows()
        # What the reference cannot store is left out of an export, and told.
        connection.execute("DELETE FROM registrations WHERE version < 2::numeric ^ 63")
        for table in TABLES:
            connection.execute(f"DELETE FROM {table}")
        if not exported.registered + exported.unregistered + exported.requests:
            return
        with database.open_database(path, None) as reference:
            done = importing.run(
                importing.Import(
                    app_of=lambda _: "",
                    reference=reference,
                    connection=connection,
                    identity=identity,
                    most_installations=LimitSettings().installations_per_key,
                    dry=False,
                    tell=lambda told: pytest.fail(str(told)),
                    progress=lambda _: None,
                )
            )
        assert done.taken == exported.registered + exported.unregistered
        assert self._rows() == rows
        # As `wakupush pipeline warm-topics` does: else the first query of each user waits.
        users = query_topics.without_key(connection, b"", prefixed=False, most=1000)
        keys = {user: messages.query_key(topics.query_topics(user)[0]) for user in users}
        query_topics.set_keys(connection, keys, prefixed=False)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=() if path.stem == ALWAYS else pytest.mark.long)
        for path in sorted(VECTORS.glob("scenario_*.json"))
    ],
)
def test_each_step_comes_to_the_same(name, forkserver):
    scenario = Scenario(VECTORS / f"{name}.json")
    different = {}
    with running(scenario, forkserver, HandedOver) as played:
        for position, expected in enumerate(scenario.expected):
            outcome = played.outcome(position)
            if expected.verdict == NOT_COMPARED:
                continue
            if found := differences(expected, outcome):
                different[scenario.steps[position]["name"]] = found
    assert different == {}
