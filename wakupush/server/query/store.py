"""Storing the queries that wait: for the key of their topic, or for their turn."""

import random
from collections.abc import Sequence
from typing import Final

from psycopg import Connection

from wakupush.postgres import waiting_queries
from wakupush.server.engine.kind import Context, Stored
from wakupush.server.engine.outcome import Outcome

#: Seconds within which a query that waits for its turn is looked at again, at a random time.
TURN_SECONDS: Final = 1200.0


def store(connection: Connection, outcomes: Sequence[Outcome], _: Context) -> Stored:
    """Store the queries that wait; beat enqueues each again when it is due."""
    deferred_queries = [
        (outcome.entry, None if outcome.deferred.for_key else random.uniform(0.0, TURN_SECONDS))
        for outcome in outcomes
        if outcome.deferred
    ]
    if deferred_queries:
        waiting_queries.add(connection, deferred_queries)
    return Stored()
