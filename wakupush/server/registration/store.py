"""Storing registrations, and watching the query topics of their users."""

from collections.abc import Sequence

from psycopg import Connection

from wakupush.postgres import query_topics, registrations
from wakupush.server.engine.kind import Context, Stored
from wakupush.server.engine.outcome import Outcome
from wakupush.server.registration.decide import RegistrationEffect


def store(connection: Connection, outcomes: Sequence[Outcome], context: Context) -> Stored:
    """Store registrations.

    Raises:
        OutdatedError: another worker stored a newer one since `measure`.
    """
    effects = [outcome.effect for outcome in outcomes if isinstance(outcome.effect, RegistrationEffect)]
    changes = [effect.change for effect in effects if effect.change]
    if changes:
        registrations.store(connection, changes, context.identity.at_rest)
    users = {effect.watched_user for effect in effects if effect.watched_user}
    return Stored(topics=query_topics.add(connection, users) if users else ())
